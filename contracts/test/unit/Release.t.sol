// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IReservations} from "../../src/interfaces/IReservations.sol";
import {Fixture} from "../Fixture.sol";
import {Signing} from "../Signing.sol";
import {vm} from "../Vm.sol";

contract ReleaseTest is Fixture {
    function release(uint256 jobId, uint64 reserved) private {
        vm.prank(ana);
        market.release(jobId, reserved);
    }

    function test_RevertWhen_ThereIsNoSuchJob() external {
        vm.expectRevert(abi.encodeWithSelector(ILedger.NoSuchJob.selector, 1));
        release(1, 0);
    }

    function test_RevertWhen_ClaimUntilHasPassed() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        vm.warp(CLAIM_UNTIL);
        release(jobId, 5);
        vm.warp(CLAIM_UNTIL + 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooLate.selector, CLAIM_UNTIL));
        release(jobId, 0);
    }

    function test_WhenItAsksForMoreThanItHas() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        release(jobId, 11);
        vm.assertEq(market.account(jobId, ana).reserved, 10);
        vm.assertEq(market.job(jobId).reserved, 10);
    }

    function test_WhenItAsksForLessThanItIsCreditedWith() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        settle(jobId, ana, 4, 1);
        release(jobId, 0);
        vm.assertEq(market.account(jobId, ana).reserved, 4);
        vm.assertEq(market.job(jobId).reserved, 4);
        vm.assertEq(market.due(jobId, ana), 4);
    }

    function test_WhenTheSameIsAsked() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        bytes memory signature = Signing.release(market, ANA_KEY, jobId, ana, 0, 0);
        release(jobId, 10);
        vm.assertEq(market.releaseNonce(jobId, ana), 1);
        vm.expectRevert(ILedger.BadSignature.selector);
        market.releaseFor(jobId, ana, 0, 0, signature);
    }

    function test_FreeTheDifferenceForTheRequester() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        reserve(jobId, ben, 10);
        release(jobId, 4);
        vm.assertEq(market.free(jobId), DEPOSIT - 14);
        vm.assertEq(market.account(jobId, ben).reserved, 10);
    }

    function test_EmitReleased() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        release(jobId, 9);
        vm.expectEmit();
        emit IReservations.Released(jobId, ana, 4, 1);
        release(jobId, 4);
    }
}
