// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {vm} from "../Vm.sol";
import {Books} from "./Books.sol";
import {HostilePlay} from "./HostilePlay.sol";

contract HostileInvariants is Books {
    HostilePlay private hostile;

    function setUp() external {
        hostile = new HostilePlay();
        play = hostile;
        market = play.market();
    }

    function invariant_all() external view {
        _checkBooks();
        invariant_StrangersGetNothing();
        invariant_ForeignVouchersNeverPay();
        invariant_NoBatchCountsTwice();
        _forEachWorker(invariant_ReservationCoversEarned);
    }

    /// forge calls it at the end of each run, wherever that left the jobs
    function afterInvariant() external {
        play.redeemAll();
        _forEachWorker(invariant_HonestWorkerGotAllItEarned);
    }

    function _forEachWorker(function(uint256, address) internal view check) private view {
        for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
            for (uint256 i; i < play.WORKERS(); ++i) {
                check(jobId, play.workers(i));
            }
        }
    }

    /// whatever the requester did, the newest voucher pays the worker to the last unit until claimUntil; and a worker
    /// that redeems before claimUntil has been paid after it
    function invariant_HonestWorkerGotAllItEarned(uint256 jobId, address worker) internal view {
        vm.assertGe(market.account(jobId, worker).withdrawn, play.earned(jobId, worker), "a worker lost");
    }

    function invariant_ReservationCoversEarned(uint256 jobId, address worker) internal view {
        vm.assertGe(market.account(jobId, worker).reserved, play.earned(jobId, worker), "a reservation fell");
    }

    function invariant_StrangersGetNothing() internal view {
        vm.assertEq(play.token().balanceOf(hostile.stranger()), 0, "a stranger was paid");
    }

    function invariant_ForeignVouchersNeverPay() internal view {
        vm.assertEq(hostile.foreignRedeems(), 0, "a foreign voucher counted");
    }

    function invariant_NoBatchCountsTwice() internal view {
        vm.assertEq(hostile.replays(), 0, "a batch counted twice");
    }

    function _payees() internal view override returns (address[] memory payees) {
        uint256 count = play.WORKERS();
        payees = new address[](count + 2);
        for (uint256 i; i < count; ++i) {
            payees[i] = play.workers(i);
        }
        (payees[count], payees[count + 1]) = (hostile.sybil(), hostile.stranger());
    }
}
