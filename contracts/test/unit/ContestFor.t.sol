// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {GradMarket} from "../../src/GradMarket.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IStake} from "../../src/interfaces/IStake.sol";
import {Signing} from "../Signing.sol";
import {StakeFixture} from "../StakeFixture.sol";
import {vm} from "../Vm.sol";

contract ContestForTest is StakeFixture {
    address private constant WATCHER = address(0x3A7C);

    function setUp() public override {
        super.setUp();
        join(ana, AT_RISK);
    }

    function mandate() private view returns (bytes memory) {
        return Signing.watch(market, ANA_KEY, ana, WATCHER);
    }

    function contestAs(address watcher, bytes32 caseId, bytes memory signature) private {
        vm.prank(watcher);
        market.contestFor(caseId, signature);
    }

    function refuse(address watcher, bytes memory signature) private {
        bytes32 caseId = keccak256(abi.encode(jobId, ana, EVENT));
        vm.expectRevert(ILedger.BadSignature.selector);
        contestAs(watcher, caseId, signature);
    }

    function expectStage(IStake.Stage stage) private {
        vm.expectRevert(abi.encodeWithSelector(IStake.WrongStage.selector, stage));
    }

    function test_RevertWhen_ThereIsNoSuchCase() external {
        bytes memory signature = mandate();
        expectStage(IStake.Stage.None);
        contestAs(WATCHER, keccak256("no case"), signature);
    }

    function test_RevertWhen_AnotherSigned() external {
        accuse(1);
        refuse(WATCHER, Signing.watch(market, BEN_KEY, ana, WATCHER));
        refuse(WATCHER, Signing.watch(market, BEN_KEY, ben, WATCHER));
        refuse(WATCHER, "");
    }

    function test_RevertWhen_AnotherWatcherIsNamed() external {
        accuse(1);
        refuse(stranger, mandate());
        refuse(ana, mandate());
    }

    function test_RevertWhen_TheSignatureIsMalleable() external {
        accuse(1);
        refuse(WATCHER, Signing.malleable(mandate()));
        refuse(WATCHER, Signing.short(mandate()));
    }

    function test_RevertWhen_TheSignatureIsOfAnotherInstance() external {
        accuse(1);
        vm.warp(START + 1);
        GradMarket other = deploy(IERC20(address(token)));
        refuse(WATCHER, Signing.watch(other, ANA_KEY, ana, WATCHER));
    }

    function test_RevertWhen_TheContestWindowHasPassed() external {
        bytes32 caseId = accuse(1);
        bytes memory signature = mandate();
        vm.warp(START + CONTEST_WINDOW + 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooLate.selector, START + CONTEST_WINDOW));
        contestAs(WATCHER, caseId, signature);
    }

    function test_RevertWhen_ItWasContestedBefore() external {
        bytes32 caseId = accuse(1);
        bytes memory signature = mandate();
        contest(caseId);
        expectStage(IStake.Stage.Contested);
        contestAs(WATCHER, caseId, signature);
    }

    function test_OpenTheDecisionWindow() external {
        bytes32 caseId = accuse(1);
        bytes memory signature = mandate();
        vm.warp(START + CONTEST_WINDOW);
        vm.expectEmit();
        emit IStake.Contested(caseId, START + CONTEST_WINDOW + DECISION_WINDOW);
        contestAs(WATCHER, caseId, signature);
        vm.assertTrue(market.caseOf(caseId).stage == IStake.Stage.Contested);
        vm.assertEq(market.caseOf(caseId).until, START + CONTEST_WINDOW + DECISION_WINDOW);
    }

    function test_GiveTheCallerNothingElse() external {
        bytes memory signature = mandate();
        reserve(jobId, ana, 10);
        vm.startPrank(WATCHER);
        vm.expectRevert(ILedger.BadSignature.selector);
        market.setPayoutFor(ana, WATCHER, 0, signature);
        vm.expectRevert(ILedger.BadSignature.selector);
        market.releaseFor(jobId, ana, 0, 0, signature);
        vm.expectRevert(ILedger.BadSignature.selector);
        market.redeem(jobId, ana, 10, signature);
        vm.expectRevert(IStake.NotJoined.selector);
        market.leaveJob(jobId);
        vm.expectRevert(abi.encodeWithSelector(ILedger.Overdrawn.selector, 0));
        market.unstake(1);
        vm.stopPrank();
        vm.assertEq(market.staker(ana).amount, STAKE);
    }
}
