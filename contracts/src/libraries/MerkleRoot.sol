// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title Merkle roots that OpenZeppelin's MerkleProof verifies.
library MerkleRoot {
    /// @notice Writes keccak256(prefix | digest) for each 32-byte digest into `leaves`, from index `first`.
    /// @param prefix worker (20 bytes) | price (6 bytes), left-aligned
    /// @dev the caller has sized `leaves`
    function addLeaves(bytes32[] memory leaves, uint256 first, bytes32 prefix, bytes calldata digests) internal pure {
        assembly ("memory-safe") {
            let scratch := mload(0x40)
            mstore(scratch, prefix)
            let body := add(scratch, 26)
            let to := add(add(leaves, 32), shl(5, first))
            let end := add(digests.offset, digests.length)
            for { let from := digests.offset } lt(from, end) { from := add(from, 32) } {
                mstore(body, calldataload(from))
                mstore(to, keccak256(scratch, 58))
                to := add(to, 32)
            }
        }
    }

    /// @notice Root over the first `count` leaves, folded in place: sorted pairs; a last node without a partner moves
    /// up as it is.
    function fold(bytes32[] memory leaves, uint256 count) internal pure returns (bytes32 root) {
        assembly ("memory-safe") {
            let base := add(leaves, 32)
            for {} gt(count, 1) { count := shr(1, add(count, 1)) } {
                let to := base
                let end := add(base, shl(5, and(count, not(1))))
                for { let from := base } lt(from, end) { from := add(from, 64) } {
                    let left := mload(from)
                    let right := mload(add(from, 32))
                    let swap := mul(32, gt(left, right))
                    mstore(swap, left)
                    mstore(xor(swap, 32), right)
                    mstore(to, keccak256(0, 64))
                    to := add(to, 32)
                }
                if and(count, 1) { mstore(to, mload(end)) }
            }
            root := mload(base)
        }
    }
}
