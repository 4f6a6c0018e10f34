// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {MerkleProof} from "@openzeppelin/contracts/utils/cryptography/MerkleProof.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {Fixture} from "../Fixture.sol";
import {bound, vm} from "../Vm.sol";

contract PackedFuzz is Fixture {
    uint256 private jobId;

    function setUp() public override {
        super.setUp();
        jobId = open();
    }

    /// any bytes either are refused whole or credit no more than is reserved
    function testFuzz_JunkMovesNothing(bytes calldata junk) external {
        reserve(jobId, ana, 100);
        vm.prank(requester);
        try market.settlePacked(jobId, 0, junk) {
            vm.assertLe(market.job(jobId).credited, 100);
        } catch {
            vm.assertEq(market.job(jobId).batches, 0);
        }
    }

    /// a batch cut anywhere is refused, since every byte of it counts
    function testFuzz_ACutBatchIsRefused(uint256 length) external {
        bytes memory whole = bytes.concat(group(ana, 3, 2), group(ben, 4, 3));
        length = bound(length, 0, whole.length - 1);
        bytes memory cut = new bytes(length);
        for (uint256 i; i < length; ++i) {
            cut[i] = whole[i];
        }
        vm.assume(length != group(ana, 3, 2).length);
        vm.expectRevert(ILedger.Malformed.selector);
        vm.prank(requester);
        market.settlePacked(jobId, 0, cut);
    }

    function testFuzz_ABatchCreditsExactly(uint160 who, uint48 price, uint8 count) external {
        vm.assume(who != 0 && count != 0);
        reserve(jobId, address(who), DEPOSIT);
        settle(jobId, address(who), price, count);
        uint256 sum = uint256(price) * count;
        vm.assertEq(market.account(jobId, address(who)).settled, sum);
        vm.assertEq(market.due(jobId, address(who)), sum < DEPOSIT ? sum : DEPOSIT);
    }

    function testFuzz_OnlyItsOwnSpend(address caller, bytes calldata data) external {
        vm.assume(caller != requester && caller != address(0));
        vm.startPrank(caller);
        vm.expectRevert(ILedger.NotSender.selector);
        market.settlePacked(jobId, 0, data);
        vm.expectRevert(ILedger.NotSender.selector);
        market.reserve(jobId, data);
        vm.stopPrank();
    }

    function testFuzz_ReservationsAddUp(uint64[8] calldata amounts) external {
        bytes memory data;
        uint256 sum;
        for (uint256 i; i < amounts.length; ++i) {
            uint64 amount = uint64(bound(amounts[i], 0, DEPOSIT / 8));
            data = bytes.concat(data, abi.encodePacked(address(uint160(i % 3 + 1)), amount));
            sum += amount;
        }
        vm.prank(requester);
        market.reserve(jobId, data);
        uint256 found;
        for (uint160 i = 1; i <= 3; ++i) {
            found += market.account(jobId, address(i)).reserved;
        }
        vm.assertEq(found, sum);
        vm.assertEq(market.job(jobId).reserved, sum);
    }

    /// the stored root is one that OpenZeppelin's verifier proves every record under, and no changed one
    function testFuzz_EveryRecordIsProven(uint256 count, uint256 pick) external {
        count = bound(count, 1, 40);
        pick = bound(pick, 0, count - 1);
        settle(jobId, ana, 7, uint16(count));
        bytes32[] memory proof = _proof(_leaves(count), pick);
        bytes32 root = market.batchRoot(jobId, 0);
        vm.assertTrue(MerkleProof.verify(proof, root, _leaf(7, pick)));
        vm.assertFalse(MerkleProof.verify(proof, root, _leaf(8, pick)));
    }

    function _leaf(uint48 price, uint256 i) private view returns (bytes32) {
        return keccak256(abi.encodePacked(ana, price, digest(ana, i)));
    }

    function _leaves(uint256 count) private view returns (bytes32[] memory leaves) {
        leaves = new bytes32[](count);
        for (uint256 i; i < count; ++i) {
            leaves[i] = _leaf(7, i);
        }
    }

    function _proof(bytes32[] memory level, uint256 position) private pure returns (bytes32[] memory proof) {
        proof = new bytes32[](8);
        uint256 found;
        for (; level.length > 1; position /= 2) {
            if (position ^ 1 < level.length) proof[found++] = level[position ^ 1];
            level = _next(level);
        }
        assembly ("memory-safe") {
            mstore(proof, found)
        }
    }

    function _next(bytes32[] memory level) private pure returns (bytes32[] memory next) {
        next = new bytes32[]((level.length + 1) / 2);
        for (uint256 i; i < level.length; i += 2) {
            next[i / 2] = i + 1 == level.length ? level[i] : _pair(level[i], level[i + 1]);
        }
    }

    function _pair(bytes32 a, bytes32 b) private pure returns (bytes32) {
        return a < b ? keccak256(abi.encode(a, b)) : keccak256(abi.encode(b, a));
    }
}
