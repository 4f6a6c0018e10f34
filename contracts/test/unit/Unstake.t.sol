// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IStake} from "../../src/interfaces/IStake.sol";
import {StakeFixture} from "../StakeFixture.sol";
import {vm} from "../Vm.sol";

contract UnstakeTest is StakeFixture {
    function test_RevertWhen_MoreThanIsUnexposedIsAsked() external {
        join(ana, AT_RISK);
        vm.expectRevert(abi.encodeWithSelector(ILedger.Overdrawn.selector, STAKE - AT_RISK));
        vm.prank(ana);
        market.unstake(STAKE - AT_RISK + 1);
    }

    function test_WhenItIsExposedToNoJob() external {
        join(ana, AT_RISK);
        vm.expectEmit();
        emit IStake.Unstaked(ana, STAKE - AT_RISK);
        vm.prank(ana);
        market.unstake(STAKE - AT_RISK);
        vm.assertEq(token.balanceOf(ana), STAKE - AT_RISK);
        vm.assertEq(market.staker(ana).amount, AT_RISK);
    }
}
