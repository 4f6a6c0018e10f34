// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IStake} from "../../src/interfaces/IStake.sol";
import {StakeFixture} from "../StakeFixture.sol";
import {vm} from "../Vm.sol";

contract ContestTest is StakeFixture {
    function setUp() public override {
        super.setUp();
        join(ana, AT_RISK);
    }

    function expectStage(IStake.Stage stage) private {
        vm.expectRevert(abi.encodeWithSelector(IStake.WrongStage.selector, stage));
    }

    function test_RevertWhen_ThereIsNoSuchCase() external {
        expectStage(IStake.Stage.None);
        contest(keccak256("no case"));
    }

    function test_RevertWhen_TheCallerIsNotTheAccused() external {
        bytes32 caseId = accuse(1);
        vm.expectRevert(IStake.NotAccused.selector);
        vm.prank(ben);
        market.contest(caseId);
    }

    function test_RevertWhen_TheContestWindowHasPassed() external {
        bytes32 caseId = accuse(1);
        vm.warp(START + CONTEST_WINDOW + 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooLate.selector, START + CONTEST_WINDOW));
        contest(caseId);
    }

    function test_RevertWhen_ItWasContestedBefore() external {
        bytes32 caseId = accuse(1);
        contest(caseId);
        expectStage(IStake.Stage.Contested);
        contest(caseId);
    }

    function test_WhenTheAccusedContestsInTime() external {
        bytes32 caseId = accuse(1);
        vm.warp(START + CONTEST_WINDOW);
        vm.expectEmit();
        emit IStake.Contested(caseId, START + CONTEST_WINDOW + DECISION_WINDOW);
        contest(caseId);
        vm.assertTrue(market.caseOf(caseId).stage == IStake.Stage.Contested);
        vm.assertEq(market.caseOf(caseId).until, START + CONTEST_WINDOW + DECISION_WINDOW);
    }
}
