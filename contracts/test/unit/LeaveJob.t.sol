// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IStake} from "../../src/interfaces/IStake.sol";
import {StakeFixture} from "../StakeFixture.sol";
import {vm} from "../Vm.sol";

contract LeaveJobTest is StakeFixture {
    function test_RevertWhen_TheWorkerHasNotJoined() external {
        vm.expectRevert(IStake.NotJoined.selector);
        leaveAs(ana);
    }

    function test_RevertWhen_TheWorkerHasLeft() external {
        join(ana, AT_RISK);
        leaveAs(ana);
        vm.expectRevert(IStake.AlreadyLeft.selector);
        leaveAs(ana);
    }

    function test_WhenTheWorkerHasJoined() external {
        join(ana, AT_RISK);
        vm.expectEmit();
        emit IStake.Left(jobId, ana, START + SLASH_WINDOW);
        leaveAs(ana);
        vm.assertEq(market.exposure(jobId, ana).lockedUntil, START + SLASH_WINDOW);
        vm.assertEq(market.staker(ana).exposed, AT_RISK);
    }
}
