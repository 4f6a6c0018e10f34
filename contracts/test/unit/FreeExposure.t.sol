// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IStake} from "../../src/interfaces/IStake.sol";
import {StakeFixture} from "../StakeFixture.sol";
import {vm} from "../Vm.sol";

contract FreeExposureTest is StakeFixture {
    function test_RevertWhen_TheWorkerHasNotJoined() external {
        vm.expectRevert(IStake.NotJoined.selector);
        market.freeExposure(jobId, ana);
    }

    function test_RevertWhen_TheWorkerHasNotLeft() external {
        join(ana, AT_RISK);
        vm.warp(CLAIM_UNTIL + 100 days);
        vm.expectRevert(IStake.NotLeft.selector);
        market.freeExposure(jobId, ana);
    }

    function test_RevertWhen_TheSlashWindowIsOpen() external {
        join(ana, AT_RISK);
        leaveAs(ana);
        vm.warp(START + SLASH_WINDOW);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooEarly.selector, START + SLASH_WINDOW + 1));
        market.freeExposure(jobId, ana);
    }

    function test_RevertWhen_AnAccusationIsOpen() external {
        join(ana, AT_RISK);
        leaveAs(ana);
        accuse(1);
        vm.warp(START + SLASH_WINDOW + 1);
        vm.expectRevert(IStake.CaseOpen.selector);
        market.freeExposure(jobId, ana);
    }

    function test_FreeTheStakeWhoeverAsks() external {
        join(ana, AT_RISK);
        leaveAs(ana);
        vm.warp(START + SLASH_WINDOW + 1);
        vm.expectEmit();
        emit IStake.Freed(jobId, ana, AT_RISK);
        vm.prank(stranger);
        market.freeExposure(jobId, ana);
        vm.assertEq(market.staker(ana).exposed, 0);
        vm.prank(ana);
        market.unstake(STAKE);
        vm.assertEq(token.balanceOf(ana), STAKE);
        vm.expectRevert(IStake.NotJoined.selector);
        market.freeExposure(jobId, ana);
    }

    function test_FreeWhatASlashHasLeft() external {
        join(ana, AT_RISK);
        leaveAs(ana);
        bytes32 caseId = accuse(100);
        vm.warp(START + CONTEST_WINDOW + 1);
        market.close(caseId);
        market.freeExposure(jobId, ana);
        vm.assertEq(market.staker(ana).exposed, 0);
        vm.assertEq(market.staker(ana).amount, STAKE - 100);
    }
}
