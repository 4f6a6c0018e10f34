// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {Escrow} from "./Escrow.sol";
import {Justice} from "./Justice.sol";
import {Ledger} from "./Ledger.sol";
import {Reservations} from "./Reservations.sol";
import {Settlement} from "./Settlement.sol";
import {Vouchers} from "./Vouchers.sol";

/// @title Pays workers per accepted gradient from an escrow in which each worker's share is its own.
/// @notice See interfaces/ for what each part promises.
contract GradMarket is Escrow, Reservations, Settlement, Vouchers, Justice {
    /// @param token_ an ordinary ERC-20: balances change by transfers alone (no rebasing)
    /// @param minWindow_ least time, in seconds, that workers have to redeem after a job's expiry
    /// @param salt drawn at random by the deployer
    constructor(IERC20 token_, uint48 minWindow_, bytes32 salt) Ledger(token_, minWindow_, salt) {}
}
