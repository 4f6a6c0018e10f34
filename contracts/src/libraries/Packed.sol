// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "../interfaces/ILedger.sol";

/// @title Reads packed calldata. Whatever is cut short, empty or names the zero address is refused as malformed.
library Packed {
    /// @dev bytes of worker (20) | amount (8)
    uint256 internal constant ROW = 28;
    /// @dev bytes of worker (20) | price (6) | count (2)
    uint256 internal constant HEADER = 28;

    function rows(bytes calldata data) internal pure returns (uint256) {
        if (data.length == 0 || data.length % ROW != 0) revert ILedger.Malformed();
        return data.length / ROW;
    }

    /// @dev `i` is below `rows`, so the row lies inside `data`
    function row(bytes calldata data, uint256 i) internal pure returns (address worker, uint64 amount) {
        uint256 position;
        unchecked {
            position = i * ROW;
        }
        uint256 word = _word(data, position);
        worker = _worker(word);
        amount = uint64(word >> 32);
    }

    /// @notice The group at `position`: who, how much each, and where its digests end.
    function group(bytes calldata data, uint256 position)
        internal
        pure
        returns (address worker, uint64 price, uint64 count, uint256 end)
    {
        // a header cut short reads what lies behind it; then its digests end past the data, which is refused
        uint256 word = _word(data, position);
        worker = _worker(word);
        price = uint48(word >> 48);
        count = uint16(word >> 32);
        end = position + HEADER + uint256(count) * 32;
        if (count == 0 || end > data.length) revert ILedger.Malformed();
    }

    function _worker(uint256 word) private pure returns (address worker) {
        worker = address(uint160(word >> 96));
        if (worker == address(0)) revert ILedger.Malformed();
    }

    function _word(bytes calldata data, uint256 position) private pure returns (uint256 word) {
        assembly ("memory-safe") {
            word := calldataload(add(data.offset, position))
        }
    }
}
