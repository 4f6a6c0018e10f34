// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IVouchers} from "../../src/interfaces/IVouchers.sol";
import {Fixture} from "../Fixture.sol";
import {vm} from "../Vm.sol";

contract CollectTest is Fixture {
    function test_RevertWhen_ThereIsNoSuchJob() external {
        vm.expectRevert(abi.encodeWithSelector(ILedger.NoSuchJob.selector, 1));
        market.collect(1, ana);
    }

    function test_WhenNothingIsDue() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        vm.recordLogs();
        vm.assertEq(market.collect(jobId, ana), 0);
        vm.assertEq(vm.getRecordedLogs().length, 0);
    }

    function test_WhenClaimUntilAndTheRefundHavePassed() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        settle(jobId, ana, 4, 1);
        vm.warp(CLAIM_UNTIL + 1);
        vm.prank(requester);
        market.refund(jobId);
        vm.assertEq(market.collect(jobId, ana), 4);
        vm.assertEq(balance(ana), 4);
    }

    function test_WhenTheWorkerHasNamedAPayoutAddress() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        settle(jobId, ana, 4, 1);
        vm.prank(ana);
        market.setPayout(ben);
        market.collect(jobId, ana);
        vm.assertEq(balance(ben), 4);
    }

    function test_PayTheWorkerWhoeverSendsIt() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        settle(jobId, ana, 4, 2);
        vm.expectEmit();
        emit IVouchers.Paid(jobId, ana, ana, 8);
        vm.prank(stranger);
        market.collect(jobId, ana);
        vm.assertEq(balance(ana), 8);
    }

    function test_PayOnce() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        settle(jobId, ana, 4, 2);
        market.collect(jobId, ana);
        vm.assertEq(market.due(jobId, ana), 0);
        vm.assertEq(market.collect(jobId, ana), 0);
        vm.assertEq(market.job(jobId).credited, 8);
        vm.assertEq(balance(ana), 8);
    }
}
