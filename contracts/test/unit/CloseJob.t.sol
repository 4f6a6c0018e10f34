// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IReservations} from "../../src/interfaces/IReservations.sol";
import {Fixture} from "../Fixture.sol";
import {Signing} from "../Signing.sol";
import {vm} from "../Vm.sol";

contract CloseJobTest is Fixture {
    uint256 private jobId;

    function setUp() public override {
        super.setUp();
        jobId = open();
        reserve(jobId, ana, 100);
        reserve(jobId, ben, 100);
    }

    function releases(uint64 nonce) private view returns (IReservations.SignedRelease[] memory rows) {
        rows = new IReservations.SignedRelease[](2);
        bytes memory first = Signing.release(market, ANA_KEY, jobId, ana, 30, nonce);
        rows[0] = IReservations.SignedRelease(ana, 30, nonce, first);
        rows[1] = IReservations.SignedRelease(ben, 0, 0, Signing.release(market, BEN_KEY, jobId, ben, 0, 0));
    }

    function closeWith(IReservations.SignedRelease[] memory rows) private returns (uint64) {
        vm.prank(requester);
        return market.closeJob(jobId, rows);
    }

    function test_RevertWhen_TheCallerIsNotTheRequester() external {
        IReservations.SignedRelease[] memory rows = releases(0);
        vm.expectRevert(ILedger.NotRequester.selector);
        market.closeJob(jobId, rows);
    }

    function test_RevertWhen_ClaimUntilHasPassed() external {
        IReservations.SignedRelease[] memory rows = releases(0);
        vm.warp(CLAIM_UNTIL + 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooLate.selector, CLAIM_UNTIL));
        closeWith(rows);
    }

    function test_WhenAReleaseIsNotGood() external {
        IReservations.SignedRelease[] memory rows = releases(1);
        vm.expectEmit();
        emit IReservations.ReleaseSkipped(jobId, 0, ana);
        vm.assertEq(closeWith(rows), DEPOSIT - 100);
        vm.assertEq(market.account(jobId, ana).reserved, 100);
        vm.assertEq(market.account(jobId, ben).reserved, 0);
    }

    function test_WhenTheJobHasExpired() external {
        vm.warp(EXPIRY + 1);
        closeWith(releases(0));
        vm.assertEq(market.job(jobId).expiry, EXPIRY);
    }

    function test_GiveBackAllThatWasNotEarned() external {
        settle(jobId, ben, 7, 1);
        uint256 before = balance(requester);
        IReservations.SignedRelease[] memory rows = releases(0);
        vm.expectEmit();
        emit IReservations.JobClosed(jobId);
        vm.assertEq(closeWith(rows), DEPOSIT - 37);
        vm.assertEq(balance(requester), before + DEPOSIT - 37);
        vm.assertEq(market.free(jobId), 0);
    }

    function test_LetNoDepositOrReservationFollow() external {
        vm.warp(EXPIRY);
        closeWith(releases(0));
        vm.assertEq(market.job(jobId).expiry, EXPIRY - 1);
        vm.startPrank(requester);
        vm.expectPartialRevert(ILedger.TooLate.selector);
        market.topUp(jobId, 1);
        vm.expectPartialRevert(ILedger.TooLate.selector);
        market.reserve(jobId, abi.encodePacked(ana, uint64(0)));
        vm.stopPrank();
    }

    function test_StillPayWhatWasEarned() external {
        closeWith(releases(0));
        vm.assertEq(redeem(jobId, ana, 30), 30);
        settle(jobId, ben, 7, 1);
        vm.assertEq(market.due(jobId, ben), 0);
    }
}
