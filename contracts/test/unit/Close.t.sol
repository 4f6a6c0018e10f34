// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

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
}
