// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IStake} from "../../src/interfaces/IStake.sol";
import {StakeFixture} from "../StakeFixture.sol";
import {vm} from "../Vm.sol";

contract JoinJobTest is StakeFixture {
    function refuse(uint256 job, uint128 atRisk, bytes32 quorum_) private {
        vm.expectRevert(ILedger.BadTerms.selector);
        vm.prank(ana);
        market.joinJob(job, atRisk, quorum_);
    }

    function test_RevertWhen_ThereIsNoSuchJob() external {
        vm.expectRevert(abi.encodeWithSelector(ILedger.NoSuchJob.selector, 9));
        market.joinJob(9, 1, keccak256("quorum"));
    }

    function test_RevertWhen_TheJobHasExpired() external {
        vm.warp(EXPIRY + 1);
        bytes32 mine = quorum();
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooLate.selector, EXPIRY));
        vm.prank(ana);
        market.joinJob(jobId, 1, mine);
    }

    function test_RevertWhen_TheJobNeverSlashes() external {
        refuse(open(), AT_RISK, quorum());
    }

    function test_RevertWhen_NothingIsPutAtRisk() external {
        refuse(jobId, 0, quorum());
    }

    function test_RevertWhen_NoValidatorsAreNamed() external {
        refuse(jobId, AT_RISK, 0);
    }

    function test_RevertWhen_TheWorkerHasJoined() external {
        join(ana, 1);
        bytes32 mine = quorum();
        vm.expectRevert(IStake.AlreadyJoined.selector);
        vm.prank(ana);
        market.joinJob(jobId, 1, mine);
    }

    function test_RevertWhen_MoreThanIsUnexposedIsPutAtRisk() external {
        join(ana, AT_RISK);
        uint256 other = openWith(slashing());
        bytes32 mine = quorum();
        vm.expectRevert(abi.encodeWithSelector(ILedger.Overdrawn.selector, STAKE - AT_RISK));
        vm.prank(ana);
        market.joinJob(other, STAKE - AT_RISK + 1, mine);
    }

    function test_WhenItWasSlashedToNothingAfterLeaving() external {
        join(ana, AT_RISK);
        leaveAs(ana);
        vm.warp(START + 1);
        bytes32 caseId = accuse(AT_RISK);
        contest(caseId);
        market.decide(caseId, true, validators, 2, rulings(caseId, AT_RISK, true, 0, 1));
        join(ana, 10);
        vm.assertEq(market.exposure(jobId, ana).lockedUntil, 0);
        vm.assertEq(market.exposure(jobId, ana).atRisk, 10);
    }

    function test_ExposeThatMuchOfTheStake() external {
        vm.warp(EXPIRY);
        join(ana, STAKE);
        vm.assertEq(market.staker(ana).exposed, STAKE);
        vm.assertEq(market.exposure(jobId, ana).atRisk, STAKE);
        vm.assertEq(market.exposure(jobId, ana).quorum, quorum());
    }

    function test_EmitJoined() external {
        vm.expectEmit();
        emit IStake.Joined(jobId, ana, AT_RISK, quorum());
        join(ana, AT_RISK);
    }
}
