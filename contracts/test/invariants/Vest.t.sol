// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {GradMarket} from "../../src/GradMarket.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {vm} from "../Vm.sol";
import {VestPlay} from "./VestPlay.sol";

/// @dev The packed accounts against the same books in wide integers, and the tokens against both, after every move.
contract VestInvariants {
    VestPlay private play;
    GradMarket private market;

    function setUp() external {
        play = new VestPlay();
        market = play.market();
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(play);
    }

    function invariant_all() external view {
        vm.assertEq(bytes(play.surprise()), bytes(""));
        invariant_BooksAreTheReferences();
        invariant_WhatIsOwedIsHeld();
        invariant_WorkersHaveWhatTheyWerePaid();
        invariant_WhatIsLostIsBurnt();
    }

    /// forge calls it at the end of each run, wherever that left jobs and cases
    function afterInvariant() external {
        play.settleUp();
        vm.assertEq(bytes(play.surprise()), bytes(""));
        for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
            for (uint256 i; i < play.WORKERS(); ++i) {
                VestPlay.Row memory row = play.rowOf(jobId, play.workers(i));
                vm.assertEq(
                    row.paid + row.burnt, play.credited(jobId, play.workers(i)), "all that was not burnt is paid"
                );
            }
        }
        invariant_WorkersHaveWhatTheyWerePaid();
        vm.assertEq(play.token().balanceOf(address(market)), 0, "nothing is left");
    }

    function invariant_BooksAreTheReferences() internal view {
        for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
            ILedger.Job memory j = market.job(jobId);
            vm.assertEq(j.deposited, play.deposited(jobId), "deposited");
            vm.assertEq(j.reserved, play.boundOf(jobId), "reserved = sum over workers");
            vm.assertEq(j.credited, play.creditedOf(jobId), "credited = sum over workers");
            for (uint256 i; i < play.WORKERS(); ++i) {
                _checkAccount(jobId, play.workers(i));
            }
        }
    }

    function _checkAccount(uint256 jobId, address worker) private view {
        ILedger.Account memory a = market.account(jobId, worker);
        VestPlay.Row memory row = play.rowOf(jobId, worker);
        vm.assertEq(a.reserved, row.reserved, "reserved");
        vm.assertEq(a.settled, row.settled, "settled");
        vm.assertEq(a.vouchered, row.vouchered, "vouchered");
        vm.assertEq(a.withdrawn, row.paid + row.burnt, "withdrawn = paid + burnt");
        vm.assertEq(a.creditedAt, row.creditedAt, "the time of the last credit");
        vm.assertEq(market.due(jobId, worker), play.due(jobId, worker), "due");
        vm.assertLe(row.accused, play.locked(jobId, worker), "what is accused is locked");
    }

    /// jobs, stakes, bonds and what is to burn, to the token's smallest unit
    function invariant_WhatIsOwedIsHeld() internal view {
        uint256 owed = market.toBurn() + market.staker(address(play)).amount + play.openBonds();
        for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
            owed += play.deposited(jobId) * play.UNIT();
            for (uint256 i; i < play.WORKERS(); ++i) {
                VestPlay.Row memory row = play.rowOf(jobId, play.workers(i));
                owed -= (row.paid + row.burnt) * play.UNIT();
            }
        }
        vm.assertEq(play.token().balanceOf(address(market)), owed, "held = owed");
    }

    function invariant_WorkersHaveWhatTheyWerePaid() internal view {
        for (uint256 i; i < play.WORKERS(); ++i) {
            uint256 paid;
            for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
                paid += play.rowOf(jobId, play.workers(i)).paid;
            }
            vm.assertEq(play.token().balanceOf(play.workers(i)), paid * play.UNIT(), "paid");
        }
    }

    function invariant_WhatIsLostIsBurnt() internal view {
        uint256 lost = play.forfeited();
        for (uint256 i; i < play.WORKERS(); ++i) {
            lost += play.rowOf(1, play.workers(i)).burnt * play.UNIT();
        }
        vm.assertEq(market.toBurn() + play.burntAway(), lost, "burnt = ruled + forfeited");
    }
}
