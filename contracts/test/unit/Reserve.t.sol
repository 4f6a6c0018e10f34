// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IReservations} from "../../src/interfaces/IReservations.sol";
import {Fixture} from "../Fixture.sol";
import {vm} from "../Vm.sol";

contract ReserveTest is Fixture {
    function send(uint256 jobId, bytes memory data) private {
        vm.prank(requester);
        market.reserve(jobId, data);
    }

    function refuse(bytes memory data) private {
        uint256 jobId = open();
        vm.expectRevert(ILedger.Malformed.selector);
        send(jobId, data);
    }

    function test_RevertWhen_ThereIsNoSuchJob() external {
        vm.expectRevert(abi.encodeWithSelector(ILedger.NoSuchJob.selector, 1));
        reserve(1, ana, 1);
    }

    function test_RevertWhen_TheCallerMayNotSpend() external {
        uint256 jobId = open();
        vm.expectRevert(ILedger.NotSender.selector);
        vm.prank(stranger);
        market.reserve(jobId, abi.encodePacked(stranger, uint64(1)));
    }

    function test_RevertWhen_TheJobHasExpired() external {
        uint256 jobId = open();
        vm.warp(EXPIRY);
        reserve(jobId, ana, 1);
        vm.warp(EXPIRY + 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooLate.selector, EXPIRY));
        reserve(jobId, ana, 1);
    }

    function test_RevertWhen_TheDataIsEmpty() external {
        refuse("");
    }

    function test_RevertWhen_TheDataIsCutShort() external {
        refuse(abi.encodePacked(ana, uint64(1), ben, uint56(1)));
    }

    function test_RevertWhen_AWorkerIsTheZeroAddress() external {
        refuse(abi.encodePacked(ana, uint64(1), address(0), uint64(1)));
    }

    function test_RevertWhen_MoreThanIsFreeIsAsked() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        vm.expectRevert(abi.encodeWithSelector(ILedger.Overdrawn.selector, DEPOSIT - 10));
        send(jobId, abi.encodePacked(ana, DEPOSIT - 10, ben, uint64(1)));
    }

    function test_WhenAllThatIsFreeIsAsked() external {
        uint256 jobId = open();
        reserve(jobId, ana, DEPOSIT);
        vm.assertEq(market.free(jobId), 0);
    }

    function test_WhenAWorkerStandsTwice() external {
        uint256 jobId = open();
        send(jobId, abi.encodePacked(ana, uint64(3), ana, uint64(4)));
        vm.assertEq(market.account(jobId, ana).reserved, 7);
        vm.assertEq(market.job(jobId).reserved, 7);
    }

    function test_WhenABatchWentBeyondTheOldReservation() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        settle(jobId, ana, 15, 1);
        reserve(jobId, ana, 3);
        vm.assertEq(market.due(jobId, ana), 13);
        vm.assertEq(market.job(jobId).credited, 13);
        reserve(jobId, ana, 3);
        vm.assertEq(market.due(jobId, ana), 15);
        vm.assertEq(market.job(jobId).credited, 15);
    }

    function test_WhenAVoucherWentBeyondTheOldReservation() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        redeem(jobId, ana, 15);
        reserve(jobId, ana, 20);
        vm.assertEq(market.due(jobId, ana), 5);
        vm.assertEq(market.job(jobId).credited, 15);
    }

    function test_AddToEachWorker() external {
        uint256 jobId = open();
        send(jobId, abi.encodePacked(ana, uint64(3), ben, uint64(4)));
        reserve(jobId, ben, 1);
        vm.assertEq(market.account(jobId, ana).reserved, 3);
        vm.assertEq(market.account(jobId, ben).reserved, 5);
        vm.assertEq(market.job(jobId).reserved, 8);
        vm.assertEq(market.free(jobId), DEPOSIT - 8);
    }

    function test_EmitReserved() external {
        uint256 jobId = open();
        reserve(jobId, ana, 3);
        vm.expectEmit();
        emit IReservations.Reserved(jobId, ana, 4, 7);
        reserve(jobId, ana, 4);
    }
}
