// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "../../src/interfaces/ILedger.sol";
import {ISettlement} from "../../src/interfaces/ISettlement.sol";
import {Fixture} from "../Fixture.sol";
import {vm} from "../Vm.sol";

contract SettlePackedTest is Fixture {
    function send(uint256 jobId, uint64 batch, bytes memory data) private {
        vm.prank(requester);
        market.settlePacked(jobId, batch, data);
    }

    function refuse(bytes memory data) private {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        vm.expectRevert(ILedger.Malformed.selector);
        send(jobId, 0, data);
    }

    function test_RevertWhen_ThereIsNoSuchJob() external {
        vm.expectRevert(abi.encodeWithSelector(ILedger.NoSuchJob.selector, 1));
        send(1, 0, group(ana, 1, 1));
    }

    function test_RevertWhen_TheCallerMayNotSpend() external {
        uint256 jobId = open();
        vm.expectRevert(ILedger.NotSender.selector);
        vm.prank(ana);
        market.settlePacked(jobId, 0, group(ana, 1, 1));
    }

    function test_RevertWhen_ClaimUntilHasPassed() external {
        uint256 jobId = open();
        vm.warp(CLAIM_UNTIL);
        send(jobId, 0, group(ana, 1, 1));
        vm.warp(CLAIM_UNTIL + 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooLate.selector, CLAIM_UNTIL));
        send(jobId, 1, group(ana, 1, 1));
    }

    function test_RevertWhen_TheBatchNumberIsNotTheNext() external {
        uint256 jobId = open();
        send(jobId, 0, group(ana, 1, 1));
        vm.expectRevert(abi.encodeWithSelector(ISettlement.WrongBatch.selector, 1));
        send(jobId, 0, group(ana, 1, 1));
        vm.expectRevert(abi.encodeWithSelector(ISettlement.WrongBatch.selector, 1));
        send(jobId, 2, group(ana, 1, 1));
    }

    function test_RevertWhen_TheDataIsEmpty() external {
        refuse("");
    }

    function test_RevertWhen_AGroupHasNoDigests() external {
        refuse(bytes.concat(group(ana, 1, 1), group(ana, 1, 0)));
    }

    function test_RevertWhen_DigestsAreCutShort() external {
        refuse(abi.encodePacked(ana, uint48(1), uint16(2), digest(ana, 0), bytes31(digest(ana, 1))));
    }

    function test_RevertWhen_AHeaderIsCutShort() external {
        refuse(bytes.concat(group(ana, 1, 1), abi.encodePacked(ana, uint48(1), uint8(1))));
    }

    function test_RevertWhen_AWorkerIsTheZeroAddress() external {
        refuse(bytes.concat(group(ana, 1, 1), group(address(0), 1, 1)));
    }

    function test_RevertWhen_TheSumLeavesTheLedger() external {
        uint256 jobId = open();
        bytes memory most = bytes.concat(abi.encodePacked(ana, type(uint48).max, uint16(256)), new bytes(256 * 32));
        send(jobId, 0, most);
        vm.expectRevert(abi.encodeWithSelector(ILedger.Overdrawn.selector, type(uint56).max));
        send(jobId, 1, most);
    }

    function test_CreditUpToTheReservation() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        reserve(jobId, ben, 10);
        vm.prank(ana);
        market.release(jobId, 3);
        send(jobId, 0, bytes.concat(group(ana, 4, 1), group(ben, 4, 1)));
        vm.assertEq(market.account(jobId, ana).settled, 4);
        vm.assertEq(market.due(jobId, ana), 3);
        vm.assertEq(market.job(jobId).credited, 7);
    }

    function test_CreditTheOthersInFull() external {
        uint256 jobId = open();
        reserve(jobId, ben, 10);
        send(jobId, 0, bytes.concat(group(ana, 4, 1), group(ben, 4, 1)));
        vm.assertEq(market.due(jobId, ana), 0);
        vm.assertEq(market.due(jobId, ben), 4);
    }

    function test_WhenTheJobHasExpired() external {
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        vm.warp(EXPIRY + 1);
        send(jobId, 0, group(ana, 4, 1));
        vm.assertEq(market.due(jobId, ana), 4);
    }

    function test_WhenThePriceIsTheHighest() external {
        token.mint(requester, 1e40);
        uint256 jobId = open();
        uint64 most = type(uint48).max;
        vm.prank(requester);
        market.topUp(jobId, most);
        reserve(jobId, ana, most);
        send(jobId, 0, group(ana, type(uint48).max, 1));
        vm.assertEq(market.due(jobId, ana), most);
    }

    function test_CreditEachWorkerCountTimesPrice() external {
        uint256 jobId = open();
        reserve(jobId, ana, 100);
        reserve(jobId, ben, 100);
        send(jobId, 0, bytes.concat(group(ana, 4, 3), group(ben, 5, 2), group(ana, 7, 1)));
        vm.assertEq(market.account(jobId, ana).settled, 19);
        vm.assertEq(market.due(jobId, ana), 19);
        vm.assertEq(market.due(jobId, ben), 10);
        vm.assertEq(market.job(jobId).credited, 29);
    }

    function test_CountOneBatch() external {
        uint256 jobId = open();
        send(jobId, 0, bytes.concat(group(ana, 4, 3), group(ben, 5, 2)));
        vm.assertEq(market.job(jobId).batches, 1);
    }

    function test_EmitOneEventAGroup() external {
        uint256 jobId = open();
        vm.expectEmit();
        emit ISettlement.GradientsAccepted(jobId, ana, 0, 4, bytes.concat(digest(ana, 0), digest(ana, 1)));
        vm.expectEmit();
        emit ISettlement.GradientsAccepted(jobId, ben, 0, 5, bytes.concat(digest(ben, 0)));
        vm.expectEmit();
        emit ISettlement.BatchSettled(jobId, 0, pair(pair(leaf(ana, 4, 0), leaf(ana, 4, 1)), leaf(ben, 5, 0)), 13);
        send(jobId, 0, bytes.concat(group(ana, 4, 2), group(ben, 5, 1)));
    }

    function test_StoreTheRootOverItsRecords() external {
        uint256 jobId = open();
        send(jobId, 0, group(ana, 4, 1));
        vm.assertEq(market.batchRoot(jobId, 0), leaf(ana, 4, 0));
        send(jobId, 1, group(ben, 4, 3));
        bytes32 root = pair(pair(leaf(ben, 4, 0), leaf(ben, 4, 1)), leaf(ben, 4, 2));
        vm.assertEq(market.batchRoot(jobId, 1), root);
        vm.assertEq(market.batchRoot(jobId, 2), bytes32(0));
        settle(jobId, ana, 4, 200);
        vm.assertEq(market.batchRoot(jobId, 2), rootOf(200));
    }

    function rootOf(uint256 count) private view returns (bytes32) {
        bytes32[] memory level = new bytes32[](count);
        for (uint256 i; i < count; ++i) {
            level[i] = leaf(ana, 4, i);
        }
        for (; count > 1; count = (count + 1) / 2) {
            for (uint256 i; i < count; i += 2) {
                level[i / 2] = i + 1 == count ? level[i] : pair(level[i], level[i + 1]);
            }
        }
        return level[0];
    }

    function leaf(address worker, uint48 price, uint256 i) private pure returns (bytes32) {
        return keccak256(abi.encodePacked(worker, price, digest(worker, i)));
    }

    function pair(bytes32 a, bytes32 b) private pure returns (bytes32) {
        return a < b ? keccak256(abi.encode(a, b)) : keccak256(abi.encode(b, a));
    }
}
