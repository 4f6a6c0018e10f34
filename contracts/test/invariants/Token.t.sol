// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {GradMarket} from "../../src/GradMarket.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {vm} from "../Vm.sol";
import {TokenPlay} from "./TokenPlay.sol";

contract TokenInvariants {
    uint256 private constant UNIT = 100;
    TokenPlay private play;
    GradMarket private market;

    function setUp() external {
        play = new TokenPlay();
        market = play.market();
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(play);
    }

    function invariant_all() external view {
        invariant_NoJobIsInsolvent();
        invariant_ReEntryNeverSucceeds();
        invariant_RefusedPaymentsStayDue();
    }

    /// once the token behaves, everybody can be paid out, each to what it is owed, and the requester the rest
    function afterInvariant() external {
        _behave();
        for (uint256 jobId = 1; jobId <= play.jobs(); ++jobId) {
            for (uint256 i; i < play.WORKERS(); ++i) {
                uint256 before = play.token().balanceOf(play.workers(i));
                uint256 owed = market.due(jobId, play.workers(i));
                market.collect(jobId, play.workers(i));
                vm.assertEq(play.token().balanceOf(play.workers(i)) - before, owed * UNIT, "paid = owed");
            }
            play.withdrawFree(jobId - 1);
            vm.assertEq(market.free(jobId), 0, "the rest is the requester's");
        }
    }

    /// the contract holds at least what it owes to all jobs and stakes together
    function invariant_NoJobIsInsolvent() internal view {
        uint256 owed = market.staker(address(play)).amount;
        for (uint256 jobId = 1; jobId <= play.jobs(); ++jobId) {
            owed += market.job(jobId).deposited * UNIT;
            for (uint256 i; i < play.WORKERS(); ++i) {
                owed -= market.account(jobId, play.workers(i)).withdrawn * UNIT;
            }
        }
        vm.assertGe(play.token().balanceOf(address(market)), owed, "held >= owed");
    }

    function invariant_ReEntryNeverSucceeds() internal view {
        vm.assertEq(play.reEntered(), 0, "re-entered");
    }

    /// a refused payment leaves credit and withdrawals as far apart as before
    function invariant_RefusedPaymentsStayDue() internal view {
        for (uint256 jobId = 1; jobId <= play.jobs(); ++jobId) {
            uint256 credited;
            for (uint256 i; i < play.WORKERS(); ++i) {
                ILedger.Account memory a = market.account(jobId, play.workers(i));
                credited += a.withdrawn + market.due(jobId, play.workers(i));
            }
            vm.assertEq(market.job(jobId).credited, credited, "credited = withdrawn + due");
        }
    }

    function _behave() private {
        play.token().setFee(0);
        play.token().setBonus(0);
        play.token().setHook(address(0), "");
        for (uint256 i; i < play.WORKERS(); ++i) {
            play.token().setBlacklisted(play.workers(i), false);
        }
    }
}
