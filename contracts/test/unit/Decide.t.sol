// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IStake} from "../../src/interfaces/IStake.sol";
import {Signing} from "../Signing.sol";
import {StakeFixture} from "../StakeFixture.sol";
import {vm} from "../Vm.sol";

contract DecideTest is StakeFixture {
    uint128 private constant AMOUNT = 250;
    bytes32 private caseId;

    function setUp() public override {
        super.setUp();
        join(ana, AT_RISK);
        caseId = accuse(AMOUNT);
        contest(caseId);
    }

    function signed(bool guilty) private view returns (bytes[] memory) {
        return rulings(caseId, AMOUNT, guilty, 0, 2);
    }

    function refuse(bool guilty, bytes[] memory signatures) private {
        vm.expectRevert(IStake.NoQuorum.selector);
        market.decide(caseId, guilty, validators, 2, signatures);
    }

    function test_RevertWhen_TheCaseIsNotContested() external {
        vm.prank(requester);
        bytes32 uncontested = market.accuse(jobId, ana, 1, keccak256("another"));
        bytes[] memory signatures = rulings(uncontested, 1, true, 0, 1);
        vm.expectRevert(abi.encodeWithSelector(IStake.WrongStage.selector, IStake.Stage.Open));
        market.decide(uncontested, true, validators, 2, signatures);
    }

    function test_RevertWhen_TheDecisionWindowHasPassed() external {
        bytes[] memory signatures = signed(true);
        vm.warp(START + DECISION_WINDOW + 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooLate.selector, START + DECISION_WINDOW));
        market.decide(caseId, true, validators, 2, signatures);
    }

    function test_RevertWhen_TheValidatorsAreNotTheWorkers() external {
        address[] memory own = new address[](1);
        own[0] = requester;
        bytes[] memory signatures = signed(true);
        vm.expectRevert(IStake.NoQuorum.selector);
        market.decide(caseId, true, own, 1, signatures);
        vm.expectRevert(IStake.NoQuorum.selector);
        market.decide(caseId, true, validators, 1, signatures);
    }

    function test_RevertWhen_TheThresholdIsZero() external {
        stake(ben, STAKE);
        address[] memory none = new address[](0);
        vm.prank(ben);
        market.joinJob(jobId, AT_RISK, keccak256(abi.encode(none, 0)));
        vm.prank(requester);
        bytes32 bens = market.accuse(jobId, ben, 1, EVENT);
        vm.prank(ben);
        market.contest(bens);
        vm.expectRevert(IStake.NoQuorum.selector);
        market.decide(bens, false, none, 0, new bytes[](0));
    }

    function test_RevertWhen_TooFewHaveSigned() external {
        bytes[] memory one = new bytes[](1);
        one[0] = signed(true)[0];
        refuse(true, one);
    }

    function test_RevertWhen_OneHasSignedTwice() external {
        refuse(true, rulings(caseId, AMOUNT, true, 1, 1));
        refuse(true, rulings(caseId, AMOUNT, true, 2, 0));
    }

    function test_RevertWhen_AStrangerHasSigned() external {
        bytes[] memory signatures = signed(true);
        signatures[1] = Signing.ruling(market, BEN_KEY, caseId, AMOUNT, true);
        refuse(true, signatures);
    }

    function test_RevertWhen_TheRulingIsForAnotherAmount() external {
        refuse(true, rulings(caseId, AMOUNT - 1, true, 0, 1));
    }

    function test_RevertWhen_TheRulingSaysTheOpposite() external {
        refuse(true, signed(false));
        refuse(false, signed(true));
    }

    function test_RevertWhen_AnEmptySignatureMeetsAZeroValidator() external {
        stake(ben, STAKE);
        address[] memory zero = new address[](1);
        vm.prank(ben);
        market.joinJob(jobId, AT_RISK, keccak256(abi.encode(zero, 1)));
        vm.prank(requester);
        bytes32 bens = market.accuse(jobId, ben, 1, EVENT);
        vm.prank(ben);
        market.contest(bens);
        vm.expectRevert(IStake.NoQuorum.selector);
        market.decide(bens, true, zero, 1, new bytes[](1));
    }

    function test_RevertWhen_ItWasDecidedBefore() external {
        bytes[] memory signatures = signed(true);
        market.decide(caseId, true, validators, 2, signatures);
        vm.expectRevert(abi.encodeWithSelector(IStake.WrongStage.selector, IStake.Stage.Closed));
        market.decide(caseId, true, validators, 2, signatures);
    }

    function test_SlashTheStakeAndReturnTheBond() external {
        bytes[] memory signatures = signed(true);
        vm.warp(START + DECISION_WINDOW);
        vm.expectEmit();
        emit IStake.Slashed(caseId, jobId, ana, AMOUNT);
        vm.prank(stranger);
        market.decide(caseId, true, validators, 2, signatures);
        vm.assertEq(market.staker(ana).amount, STAKE - AMOUNT);
        vm.assertEq(market.staker(ana).exposed, AT_RISK - AMOUNT);
        vm.assertEq(market.exposure(jobId, ana).atRisk, AT_RISK - AMOUNT);
        vm.assertEq(market.exposure(jobId, ana).accused, 0);
        vm.assertEq(market.exposure(jobId, ana).openCases, 0);
        vm.assertEq(market.staker(requester).amount, uint256(BOND) * UNIT);
        vm.assertTrue(market.caseOf(caseId).stage == IStake.Stage.Closed);
    }

    function test_GiveNeitherSideTheSlashedStake() external {
        market.decide(caseId, true, validators, 2, signed(true));
        vm.assertEq(market.toBurn(), AMOUNT);
        vm.prank(requester);
        market.unstake(uint128(BOND) * UNIT);
        vm.assertEq(market.staker(requester).amount, 0);
    }

    function test_WhenTheWorkerIsNotGuilty() external {
        vm.expectEmit();
        emit IStake.Acquitted(caseId, uint128(BOND) * UNIT);
        market.decide(caseId, false, validators, 2, signed(false));
        vm.assertEq(market.staker(ana).amount, STAKE);
        vm.assertEq(market.staker(ana).exposed, AT_RISK);
        vm.assertEq(market.exposure(jobId, ana).accused, 0);
        vm.assertEq(market.exposure(jobId, ana).openCases, 0);
        vm.assertEq(market.staker(requester).amount, 0);
        vm.assertEq(market.toBurn(), uint256(BOND) * UNIT);
        caseId = _another();
        market.decide(caseId, false, validators, 2, signed(false));
        vm.assertEq(market.toBurn(), 2 * uint256(BOND) * UNIT);
    }

    function _another() private returns (bytes32 opened) {
        vm.prank(requester);
        opened = market.accuse(jobId, ana, AMOUNT, keccak256("another"));
        contest(opened);
    }
}
