// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IEscrow} from "./IEscrow.sol";
import {ISettlement} from "./ISettlement.sol";
import {IVouchers} from "./IVouchers.sol";

/// @title The market's money, for one token.
/// @notice One deployment holds one token, so that a hostile token can hurt only who chose its market.
interface IGradMarket is IEscrow, ISettlement, IVouchers {
    function token() external view returns (IERC20);

    /// @notice Part of every signed struct. A local chain that is started anew gives the same chain id and the same
    /// contract address; this tells its history from the old one, so that no old signature counts.
    function INSTANCE() external view returns (bytes32);

    /// @notice Least claimUntil - expiry, and least window to contest or decide; seconds.
    function minWindow() external view returns (uint48);

    /// @notice Jobs are numbered from 1 to this.
    function jobCount() external view returns (uint256);
}
