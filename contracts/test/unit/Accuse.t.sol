// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IStake} from "../../src/interfaces/IStake.sol";
import {StakeFixture} from "../StakeFixture.sol";
import {HostileToken} from "../tokens/HostileToken.sol";
import {vm} from "../Vm.sol";

contract AccuseTest is StakeFixture {
    function test_RevertWhen_TheCallerIsNotTheRequester() external {
        join(ana, AT_RISK);
        vm.prank(requester);
        market.setSender(jobId, stranger);
        vm.expectRevert(ILedger.NotRequester.selector);
        vm.prank(stranger);
        market.accuse(jobId, ana, 1, EVENT);
    }

    function test_RevertWhen_TheWorkerHasNotJoined() external {
        vm.expectRevert(IStake.NotJoined.selector);
        accuse(1);
    }

    function test_RevertWhen_TheAmountIsZero() external {
        join(ana, AT_RISK);
        vm.expectRevert(IStake.BadAccusation.selector);
        accuse(0);
    }

    function test_RevertWhen_TheSlashWindowHasPassed() external {
        join(ana, AT_RISK);
        leaveAs(ana);
        vm.warp(START + SLASH_WINDOW + 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooLate.selector, START + SLASH_WINDOW));
        accuse(1);
    }

    function test_WhenItIsTheLastSecondOfTheSlashWindow() external {
        join(ana, AT_RISK);
        leaveAs(ana);
        vm.warp(START + SLASH_WINDOW);
        accuse(1);
        vm.assertEq(market.exposure(jobId, ana).openCases, 1);
    }

    function test_RevertWhen_OpenAccusationsExceedWhatIsAtRisk() external {
        join(ana, AT_RISK);
        accuse(400);
        vm.expectRevert(abi.encodeWithSelector(ILedger.Overdrawn.selector, 200));
        vm.prank(requester);
        market.accuse(jobId, ana, 201, keccak256("another"));
        vm.prank(requester);
        market.accuse(jobId, ana, 200, keccak256("another"));
        vm.assertEq(market.exposure(jobId, ana).accused, AT_RISK);
    }

    function test_RevertWhen_TheEventWasUsedBefore() external {
        join(ana, AT_RISK);
        bytes32 caseId = accuse(1);
        vm.expectRevert(IStake.BadAccusation.selector);
        accuse(1);
        vm.warp(START + CONTEST_WINDOW + 1);
        market.close(caseId);
        vm.expectRevert(IStake.BadAccusation.selector);
        accuse(1);
    }

    function test_RevertWhen_TheBondDoesNotArriveInFull() external {
        HostileToken hostile = new HostileToken();
        market = deploy(IERC20(address(hostile)));
        hostile.mint(requester, 1e30);
        vm.prank(requester);
        hostile.approve(address(market), type(uint256).max);
        jobId = openWith(slashing());
        hostile.mint(ana, STAKE);
        vm.startPrank(ana);
        hostile.approve(address(market), STAKE);
        market.stake(STAKE);
        vm.stopPrank();
        join(ana, AT_RISK);
        hostile.setFee(1);
        vm.expectRevert(ILedger.NothingArrived.selector);
        accuse(1);
    }

    function test_OpenACase() external {
        join(ana, AT_RISK);
        IStake.Case memory opened = market.caseOf(accuse(100));
        vm.assertEq(opened.jobId, jobId);
        vm.assertEq(opened.worker, ana);
        vm.assertEq(opened.amount, 100);
        vm.assertEq(opened.until, START + CONTEST_WINDOW);
        vm.assertTrue(opened.stage == IStake.Stage.Open);
        vm.assertEq(market.exposure(jobId, ana).accused, 100);
        vm.assertEq(market.staker(ana).amount, STAKE);
    }

    function test_TakeTheBondFromTheRequester() external {
        join(ana, AT_RISK);
        uint256 before = balance(requester);
        bytes32 caseId = accuse(100);
        vm.assertEq(before - balance(requester), BOND);
        vm.assertEq(market.caseOf(caseId).bond, uint256(BOND) * UNIT);
    }

    function test_EmitAccused() external {
        join(ana, AT_RISK);
        bytes32 caseId = keccak256(abi.encode(jobId, ana, EVENT));
        vm.expectEmit();
        emit IStake.Accused(caseId, jobId, ana, 100, EVENT, START + CONTEST_WINDOW);
        vm.assertEq(accuse(100), caseId);
    }
}
