// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IEscrow} from "../../src/interfaces/IEscrow.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IStake} from "../../src/interfaces/IStake.sol";
import {StakeFixture} from "../StakeFixture.sol";
import {vm} from "../Vm.sol";

contract CloseTest is StakeFixture {
    uint128 private constant AMOUNT = 250;
    bytes32 private caseId;

    function setUp() public override {
        super.setUp();
        join(ana, AT_RISK);
        caseId = accuse(AMOUNT);
    }

    function test_RevertWhen_ThereIsNoSuchCase() external {
        vm.expectRevert(abi.encodeWithSelector(IStake.WrongStage.selector, IStake.Stage.None));
        market.close(keccak256("no case"));
    }

    function test_RevertWhen_TheContestWindowIsOpen() external {
        vm.warp(START + CONTEST_WINDOW);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooEarly.selector, START + CONTEST_WINDOW + 1));
        market.close(caseId);
    }

    function test_RevertWhen_TheDecisionWindowIsOpen() external {
        contest(caseId);
        vm.warp(START + DECISION_WINDOW);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooEarly.selector, START + DECISION_WINDOW + 1));
        market.close(caseId);
    }

    function test_RevertWhen_ItWasClosedBefore() external {
        vm.warp(START + CONTEST_WINDOW + 1);
        market.close(caseId);
        vm.expectRevert(abi.encodeWithSelector(IStake.WrongStage.selector, IStake.Stage.Closed));
        market.close(caseId);
    }

    function test_WhenNobodyContested() external {
        vm.warp(START + CONTEST_WINDOW + 1);
        vm.expectEmit();
        emit IStake.Slashed(caseId, jobId, ana, AMOUNT);
        vm.prank(stranger);
        market.close(caseId);
        vm.assertEq(market.staker(ana).amount, STAKE - AMOUNT);
        vm.assertEq(market.toBurn(), AMOUNT);
        vm.assertEq(market.staker(requester).amount, uint256(BOND) * UNIT);
    }

    function test_WhenNobodyDecided() external {
        contest(caseId);
        vm.warp(START + DECISION_WINDOW + 1);
        vm.expectEmit();
        emit IStake.Dismissed(caseId);
        market.close(caseId);
        vm.assertEq(market.staker(ana).amount, STAKE);
        vm.assertEq(market.exposure(jobId, ana).accused, 0);
        vm.assertEq(market.exposure(jobId, ana).openCases, 0);
        vm.assertEq(market.toBurn(), 0);
        vm.assertEq(market.staker(requester).amount, uint256(BOND) * UNIT);
    }

    function test_RevertWhen_NobodyRuledOnLockedPayBeforeTheWindowEnded() external {
        bytes32 vested = vestedCase();
        vm.warp(START + DECISION_WINDOW);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooEarly.selector, START + DECISION_WINDOW + 1));
        market.close(vested);
    }

    function test_WhenNobodyRuledOnLockedPay() external {
        bytes32 vested = vestedCase();
        vm.warp(START + DECISION_WINDOW + 1);
        vm.assertEq(market.due(jobId, ana), 0);
        vm.expectEmit();
        emit IStake.Acquitted(vested, uint128(BOND) * UNIT);
        vm.prank(stranger);
        market.close(vested);
        vm.assertEq(market.toBurn(), uint256(BOND) * UNIT);
        vm.assertEq(market.staker(requester).amount, 0);
        vm.assertEq(market.collect(jobId, ana), 4);
    }

    /// @dev all of ana's credit, 4 units, in a job that vests
    function vestedCase() private returns (bytes32) {
        IEscrow.OpenParams memory params = terms();
        (params.decisionWindow, params.bond) = (DECISION_WINDOW, BOND);
        (params.vest, params.vestWindow, params.vestQuorum) = (160, 1 hours, quorum());
        jobId = openWith(params);
        reserve(jobId, ana, 10);
        vm.assertEq(redeem(jobId, ana, 4), 0);
        vm.prank(requester);
        return market.accuseVested(jobId, ana, 4, EVENT);
    }
}
