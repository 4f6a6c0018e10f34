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

    /// whatever the requester did, each worker's newest voucher pays it to the last unit until claimUntil, and after
    /// that it has been paid
    function invariant_HonestWorkerRedeemsAllItEarned() external {
        play.redeemAll();
        for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
            for (uint256 i; i < play.WORKERS(); ++i) {
                address worker = play.workers(i);
                vm.assertGe(market.account(jobId, worker).withdrawn, play.earned(jobId, worker), "a worker lost");
            }
        }
    }

    /// before claimUntil, a reservation covers what was earned against it
    function invariant_ReservationCoversEarned() external view {
        for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
            for (uint256 i; i < play.WORKERS(); ++i) {
                address worker = play.workers(i);
                vm.assertGe(market.account(jobId, worker).reserved, play.earned(jobId, worker), "a reservation fell");
            }
        }
    }

    function invariant_StrangersGetNothing() external view {
        vm.assertEq(play.token().balanceOf(hostile.stranger()), 0);
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
