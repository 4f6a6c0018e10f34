// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Fixture} from "../Fixture.sol";
import {vm} from "../Vm.sol";

contract WasAcceptedTest is Fixture {
    uint256 private jobId;

    function setUp() public override {
        super.setUp();
        jobId = open();
    }

    function leaf(address worker, uint48 price, uint256 i) private pure returns (bytes32) {
        return keccak256(abi.encodePacked(worker, price, digest(worker, i)));
    }

    function sibling(bytes32 node) private pure returns (bytes32[] memory proof) {
        proof = new bytes32[](1);
        proof[0] = node;
    }

    function test_WhenThereWasNoSuchBatch() external view {
        vm.assertFalse(market.wasAccepted(jobId, 0, ana, 4, digest(ana, 0), new bytes32[](0)));
    }

    function test_WhenANodeIsPassedOffAsALeaf() external {
        settle(jobId, ana, 4, 2);
        bytes memory pair = abi.encodePacked(leaf(ana, 4, 0), leaf(ana, 4, 1));
        address worker;
        uint48 price;
        bytes32 inner;
        assembly ("memory-safe") {
            worker := shr(96, mload(add(pair, 32)))
            price := and(shr(48, mload(add(pair, 32))), 0xffffffffffff)
            inner := mload(add(pair, 58))
        }
        vm.assertFalse(market.wasAccepted(jobId, 0, worker, price, inner, new bytes32[](0)));
    }

    function test_WhenTheRootCameFromARootedBatch() external {
        vm.prank(requester);
        market.settleRooted(jobId, 0, leaf(ana, 4, 0), abi.encodePacked(ana, uint64(4)));
        vm.assertFalse(market.wasAccepted(jobId, 0, ana, 4, digest(ana, 0), new bytes32[](0)));
    }

    function test_SayYes() external {
        settle(jobId, ana, 4, 2);
        settle(jobId, ben, 5, 1);
        vm.assertTrue(market.wasAccepted(jobId, 0, ana, 4, digest(ana, 0), sibling(leaf(ana, 4, 1))));
        vm.assertTrue(market.wasAccepted(jobId, 0, ana, 4, digest(ana, 1), sibling(leaf(ana, 4, 0))));
        vm.assertTrue(market.wasAccepted(jobId, 1, ben, 5, digest(ben, 0), new bytes32[](0)));
    }

    function test_SayNoToAnyOtherRecord() external {
        settle(jobId, ana, 4, 2);
        bytes32[] memory proof = sibling(leaf(ana, 4, 1));
        vm.assertFalse(market.wasAccepted(jobId, 0, ben, 4, digest(ana, 0), proof));
        vm.assertFalse(market.wasAccepted(jobId, 0, ana, 5, digest(ana, 0), proof));
        vm.assertFalse(market.wasAccepted(jobId, 0, ana, 4, digest(ana, 2), proof));
        vm.assertFalse(market.wasAccepted(jobId, 1, ana, 4, digest(ana, 0), proof));
        vm.assertFalse(market.wasAccepted(jobId + 1, 0, ana, 4, digest(ana, 0), proof));
    }
}
