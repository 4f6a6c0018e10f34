// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {vm} from "../Vm.sol";
import {Books} from "./Books.sol";
import {Play} from "./Play.sol";

/// @dev Forge fails these when any move reverts: nothing an honest party does is ever refused.
contract HonestInvariants is Books {
    function setUp() external {
        play = new Play();
        market = play.market();
    }

    /// paid = EARNED, whatever the order of batches and vouchers
    function invariant_PaidIsEarned() external {
        play.redeemAll();
        for (uint256 i; i < play.WORKERS(); ++i) {
            address worker = play.workers(i);
            uint256 earned;
            for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
                earned += play.earned(jobId, worker);
            }
            vm.assertEq(play.token().balanceOf(worker), earned * UNIT);
        }
    }

    /// nothing is paid before it is earned
    function invariant_NeverPaidAhead() external view {
        _forEach(_neverPaidAhead);
    }

    /// the contract's count of batches is the requester's
    function invariant_SettledIsBatched() external view {
        _forEach(_settledIsBatched);
    }

    function _neverPaidAhead(uint256 jobId, address worker) private view {
        vm.assertLe(market.account(jobId, worker).withdrawn, play.earned(jobId, worker));
    }

    function _settledIsBatched(uint256 jobId, address worker) private view {
        vm.assertEq(market.account(jobId, worker).settled, play.batched(jobId, worker));
    }

    function _forEach(function(uint256, address) internal view check) private view {
        for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
            for (uint256 i; i < play.WORKERS(); ++i) {
                check(jobId, play.workers(i));
            }
        }
    }

    function _payees() internal view override returns (address[] memory payees) {
        payees = new address[](play.WORKERS());
        for (uint256 i; i < payees.length; ++i) {
            payees[i] = play.workers(i);
        }
    }
}
