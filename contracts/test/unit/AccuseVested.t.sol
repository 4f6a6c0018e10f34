// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IStake} from "../../src/interfaces/IStake.sol";
import {FeeToken} from "../tokens/FeeToken.sol";
import {VestFixture} from "../VestFixture.sol";
import {vm} from "../Vm.sol";

contract AccuseVestedTest is VestFixture {
    bytes32 private constant OTHER = keccak256("another event");

    function test_RevertWhen_TheCallerIsNotTheRequester() external {
        redeem(jobId, ana, EARNED);
        vm.expectRevert(ILedger.NotRequester.selector);
        market.accuseVested(jobId, ana, 1, EVENT);
    }

    function test_RevertWhen_TheJobDoesNotVest() external {
        uint256 plain = openWith(slashing());
        reserve(plain, ana, 10);
        redeem(plain, ana, 4);
        vm.expectRevert(abi.encodeWithSelector(ILedger.Overdrawn.selector, 0));
        vm.prank(requester);
        market.accuseVested(plain, ana, 1, EVENT);
    }

    function test_RevertWhen_NothingWasCredited() external {
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooLate.selector, VEST_WINDOW));
        accuseVested(1);
    }

    function test_RevertWhen_TheWindowHasPassed() external {
        redeem(jobId, ana, EARNED);
        vm.warp(START + VEST_WINDOW + 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooLate.selector, START + VEST_WINDOW));
        accuseVested(1);
    }

    function test_RevertWhen_TheAmountIsZero() external {
        redeem(jobId, ana, EARNED);
        vm.expectRevert(IStake.BadAccusation.selector);
        accuseVested(0);
    }

    function test_RevertWhen_TheAmountIsMoreThanIsLocked() external {
        redeem(jobId, ana, EARNED);
        vm.expectRevert(abi.encodeWithSelector(ILedger.Overdrawn.selector, VEST));
        accuseVested(VEST + 1);
    }

    function test_RevertWhen_OtherAccusationsClaimIt() external {
        redeem(jobId, ana, EARNED);
        accuseVested(VEST - 10);
        vm.expectRevert(abi.encodeWithSelector(ILedger.Overdrawn.selector, 10));
        vm.prank(requester);
        market.accuseVested(jobId, ana, 11, OTHER);
    }

    function test_RevertWhen_TheEventWasAccusedBefore() external {
        redeem(jobId, ana, EARNED);
        rule(accuseVested(10), 10, true);
        vm.expectRevert(IStake.BadAccusation.selector);
        accuseVested(10);
    }

    function test_RevertWhen_TheBondDoesNotArrive() external {
        FeeToken fee = new FeeToken();
        market = deploy(IERC20(address(fee)));
        fee.mint(requester, 1e30);
        vm.prank(requester);
        fee.approve(address(market), type(uint256).max);
        jobId = openWith(vesting());
        reserve(jobId, ana, 100);
        redeem(jobId, ana, 50);
        fee.setFees(0, 10);
        vm.expectRevert(ILedger.NothingArrived.selector);
        accuseVested(10);
    }

    function test_WhenItIsTheLastSecond() external {
        redeem(jobId, ana, EARNED);
        vm.warp(START + VEST_WINDOW);
        vm.assertEq(uint8(market.caseOf(accuseVested(VEST)).stage), uint8(IStake.Stage.Vested));
    }

    function test_OpenACaseForTheValidators() external {
        redeem(jobId, ana, EARNED);
        bytes32 caseId = keccak256(abi.encode(jobId, ana, ~EVENT));
        vm.expectEmit();
        emit IStake.Accused(caseId, jobId, ana, uint128(VEST) * UNIT, EVENT, START + DECISION_WINDOW);
        vm.assertEq(accuseVested(VEST), caseId);
        IStake.Case memory c = market.caseOf(caseId);
        vm.assertEq(uint8(c.stage), uint8(IStake.Stage.Vested));
        vm.assertEq(c.amount, uint256(VEST) * UNIT);
        vm.assertEq(c.worker, ana);
        vm.assertEq(c.until, START + DECISION_WINDOW);
    }

    function test_TakeTheBond() external {
        redeem(jobId, ana, EARNED);
        uint256 before = balance(requester);
        bytes32 caseId = accuseVested(VEST);
        vm.assertEq(balance(requester), before - BOND);
        vm.assertEq(market.caseOf(caseId).bond, uint256(BOND) * UNIT);
    }

    function test_KeepWhatIsAccusedLocked() external {
        redeem(jobId, ana, EARNED);
        accuseVested(100);
        vm.warp(START + VEST_WINDOW + 1);
        vm.assertEq(market.due(jobId, ana), VEST - 100);
        vm.assertEq(market.collect(jobId, ana), VEST - 100);
        vm.assertEq(market.collect(jobId, ana), 0);
    }

    function test_NumberItApartFromAStakesCase() external {
        vm.prank(requester);
        market.topUp(jobId, 1);
        redeem(jobId, ana, EARNED);
        vm.assertTrue(accuseVested(1) != keccak256(abi.encode(jobId, ana, EVENT)));
    }
}
