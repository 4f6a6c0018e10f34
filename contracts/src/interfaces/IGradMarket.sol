// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IEscrow} from "./IEscrow.sol";
import {IReservations} from "./IReservations.sol";
import {ISettlement} from "./ISettlement.sol";
import {IStake} from "./IStake.sol";
import {IVesting} from "./IVesting.sol";
import {IVouchers} from "./IVouchers.sol";

/// @title The market's money.
interface IGradMarket is IEscrow, IReservations, ISettlement, IVouchers, IStake, IVesting {}
