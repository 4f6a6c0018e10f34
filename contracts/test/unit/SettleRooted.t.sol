// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "../../src/interfaces/ILedger.sol";
import {ISettlement} from "../../src/interfaces/ISettlement.sol";
import {Fixture} from "../Fixture.sol";
import {vm} from "../Vm.sol";

contract SettleRootedTest is Fixture {
    bytes32 private constant ROOT = keccak256("records");
    uint256 private jobId;

    function setUp() public override {
        super.setUp();
        jobId = open();
        reserve(jobId, ana, 100);
        reserve(jobId, ben, 100);
    }

    function row(address worker, uint64 sum) private pure returns (bytes memory) {
        return abi.encodePacked(worker, sum);
    }

    function send(uint64 batch, bytes memory data) private {
        vm.prank(requester);
        market.settleRooted(jobId, batch, ROOT, data);
    }

    function refuse(bytes memory data) private {
        vm.expectRevert(ILedger.Malformed.selector);
        send(0, data);
    }

    function test_RevertWhen_ThereIsNoSuchJob() external {
        vm.expectRevert(abi.encodeWithSelector(ILedger.NoSuchJob.selector, 9));
        market.settleRooted(9, 0, ROOT, row(ana, 1));
    }

    function test_RevertWhen_TheCallerMayNotSpend() external {
        vm.expectRevert(ILedger.NotSender.selector);
        vm.prank(ana);
        market.settleRooted(jobId, 0, ROOT, row(ana, 1));
    }

    function test_RevertWhen_ClaimUntilHasPassed() external {
        vm.warp(CLAIM_UNTIL);
        send(0, row(ana, 1));
        vm.warp(CLAIM_UNTIL + 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooLate.selector, CLAIM_UNTIL));
        send(1, row(ana, 1));
    }

    function test_RevertWhen_TheBatchNumberIsNotTheNext() external {
        send(0, row(ana, 1));
        vm.expectRevert(abi.encodeWithSelector(ISettlement.WrongBatch.selector, 1));
        send(0, row(ana, 1));
    }

    function test_RevertWhen_TheDataIsEmpty() external {
        refuse("");
    }

    function test_RevertWhen_TheDataIsCutShort() external {
        refuse(bytes.concat(row(ana, 1), abi.encodePacked(ben, uint56(1))));
    }

    function test_RevertWhen_AWorkerIsTheZeroAddress() external {
        refuse(bytes.concat(row(ana, 1), row(address(0), 1)));
    }

    function test_RevertWhen_ASumLeavesTheLedger() external {
        send(0, row(ana, type(uint56).max));
        vm.expectRevert(abi.encodeWithSelector(ILedger.Overdrawn.selector, type(uint56).max));
        send(1, row(ana, 1));
        send(1, row(ben, 1));
    }

    function test_WhenAWorkerHasReleasedTooMuch() external {
        vm.prank(ana);
        market.release(jobId, 3);
        send(0, bytes.concat(row(ana, 4), row(ben, 5)));
        vm.assertEq(market.due(jobId, ana), 3);
        vm.assertEq(market.due(jobId, ben), 5);
    }

    function test_CreditEachWorkerItsSum() external {
        send(0, bytes.concat(row(ana, 4), row(ben, 5), row(ana, 6)));
        vm.assertEq(market.account(jobId, ana).settled, 10);
        vm.assertEq(market.due(jobId, ben), 5);
        vm.assertEq(market.job(jobId).credited, 15);
        vm.assertEq(market.job(jobId).batches, 1);
    }

    function test_KeepTheRootApartFromAcceptedOnes() external {
        send(0, row(ana, 4));
        vm.assertEq(market.recordRoot(jobId, 0), ROOT);
        vm.assertEq(market.batchRoot(jobId, 0), bytes32(0));
        settle(jobId, ana, 1, 1);
        vm.assertEq(market.recordRoot(jobId, 1), bytes32(0));
    }

    function test_ShareItsNumbersWithPackedBatches() external {
        settle(jobId, ana, 1, 1);
        send(1, row(ana, 4));
        vm.assertEq(market.account(jobId, ana).settled, 5);
    }

    function test_EmitBatchRooted() external {
        vm.expectEmit();
        emit ISettlement.BatchRooted(jobId, 0, ROOT, 9);
        send(0, bytes.concat(row(ana, 4), row(ben, 5)));
    }
}
