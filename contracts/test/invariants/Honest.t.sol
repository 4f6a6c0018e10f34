// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {vm} from "../Vm.sol";
import {Books} from "./Books.sol";
import {Play} from "./Play.sol";

/// @dev Forge fails this when any move reverts: nothing an honest party does is ever refused.
contract HonestInvariants is Books {
    function setUp() external {
        play = new Play();
        market = play.market();
    }

    function invariant_all() external view {
        _checkBooks();
        for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
            for (uint256 i; i < play.WORKERS(); ++i) {
                invariant_NeverPaidAhead(jobId, play.workers(i));
                invariant_SettledIsBatched(jobId, play.workers(i));
                invariant_ReservationsFallByReleaseAlone(jobId, play.workers(i));
            }
        }
    }

    /// forge calls it at the end of each run
    function afterInvariant() external {
        invariant_PaidIsEarned();
        invariant_NothingIsLeftInTheEnd();
    }

    /// whatever the order of batches and vouchers
    function invariant_PaidIsEarned() internal {
        play.redeemAll();
        for (uint256 i; i < play.WORKERS(); ++i) {
            uint256 earned;
            for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
                earned += play.earned(jobId, play.workers(i));
            }
            vm.assertEq(play.token().balanceOf(play.workers(i)), earned * UNIT, "paid = earned");
        }
    }

    /// once all have redeemed and the requester was refunded
    function invariant_NothingIsLeftInTheEnd() internal {
        vm.warp(block.timestamp + 365 days);
        for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
            play.refund(jobId - 1);
        }
        vm.assertEq(play.token().balanceOf(address(market)), 0, "nothing is left");
    }

    function invariant_NeverPaidAhead(uint256 jobId, address worker) internal view {
        vm.assertLe(market.account(jobId, worker).withdrawn, play.earned(jobId, worker), "paid <= earned");
    }

    /// the contract's count of batches is the requester's
    function invariant_SettledIsBatched(uint256 jobId, address worker) internal view {
        vm.assertEq(market.account(jobId, worker).settled, play.batched(jobId, worker), "settled = batched");
    }

    function invariant_ReservationsFallByReleaseAlone(uint256 jobId, address worker) internal view {
        vm.assertEq(market.account(jobId, worker).reserved, play.promised(jobId, worker), "reserved = promised");
    }

    function _payees() internal view override returns (address[] memory payees) {
        payees = new address[](play.WORKERS());
        for (uint256 i; i < payees.length; ++i) {
            payees[i] = play.workers(i);
        }
    }
}
