// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "../interfaces/ILedger.sol";

/// @title An ILedger.Account as the one storage word that it is: read once, changed, written once.
/// @dev reserved (56 bits, lowest) | settled (56) | vouchered (56) | withdrawn (56) | creditedAt (32). Every sum only
/// grows within its member, so a change is an addition at the member's place.
library AccountWord {
    uint256 internal constant MOST = type(uint56).max;
    uint256 internal constant SETTLED = 56;
    uint256 internal constant VOUCHERED = 112;
    uint256 internal constant WITHDRAWN = 168;
    uint256 private constant CREDITED_AT = 224;

    function read(ILedger.Account storage a) internal view returns (uint256 word) {
        assembly ("memory-safe") {
            word := sload(a.slot)
        }
    }

    function write(ILedger.Account storage a, uint256 word) internal {
        assembly ("memory-safe") {
            sstore(a.slot, word)
        }
    }

    function reserved(uint256 word) internal pure returns (uint64) {
        return uint64(word & MOST);
    }

    function vouchered(uint256 word) internal pure returns (uint64) {
        return uint64(word >> VOUCHERED & MOST);
    }

    function creditedAt(uint256 word) internal pure returns (uint256) {
        return word >> CREDITED_AT;
    }

    /// @notice min(max(settled, vouchered), reserved)
    function credited(uint256 word) internal pure returns (uint64) {
        uint256 earned = word >> SETTLED & MOST;
        uint256 other = word >> VOUCHERED & MOST;
        if (other > earned) earned = other;
        other = word & MOST;
        return uint64(other < earned ? other : earned);
    }

    /// @notice What was credited and neither paid nor burnt; `withdrawn` never exceeds the credit, which never falls.
    function unpaid(uint256 word) internal pure returns (uint64) {
        unchecked {
            return credited(word) - uint64(word >> WITHDRAWN & MOST);
        }
    }

    /// @notice Adds to the member at `place`.
    function add(uint256 word, uint64 amount, uint256 place) internal pure returns (uint256) {
        unchecked {
            if ((word >> place & MOST) + amount > MOST) revert ILedger.Overdrawn(MOST);
            return word + (uint256(amount) << place);
        }
    }

    /// @notice The word with its credit raised now, if it is more than `before`, and by how much it is.
    function stamped(uint256 word, uint64 before) internal view returns (uint256, uint64) {
        unchecked {
            uint64 grown = credited(word) - before; // credit never falls
            if (grown == 0) return (word, 0);
            return (word << 32 >> 32 | block.timestamp << CREDITED_AT, grown);
        }
    }
}
