// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {GradMarket} from "../../src/GradMarket.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {vm} from "../Vm.sol";
import {Play} from "./Play.sol";

/// @dev What must hold of the ledger after every move, whoever plays.
abstract contract Books {
    uint64 internal constant UNIT = 1e3;
    Play internal play;
    GradMarket internal market;

    function targetContracts() public view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(play);
    }

    function _payees() internal view virtual returns (address[] memory);

    /// deposited = refunded + paid + still here, to the unit
    function invariant_Conservation() external view {
        uint256 paid;
        uint256 here;
        for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
            (ILedger.Account memory sum,) = _sums(jobId);
            paid += sum.withdrawn;
            here += market.job(jobId).deposited - sum.withdrawn;
        }
        vm.assertEq(play.deposited(), play.refunded() + paid + here);
        vm.assertEq(play.token().balanceOf(address(market)), here * UNIT);
    }

    /// credited <= reserved <= deposited, for each job
    function invariant_EachLevelIsCovered() external view {
        for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
            ILedger.Job memory j = market.job(jobId);
            vm.assertLe(j.credited, j.reserved);
            vm.assertLe(j.reserved, j.deposited);
        }
    }

    /// a job's totals are the sums over its workers
    function invariant_TotalsAreSums() external view {
        for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
            (ILedger.Account memory sum, uint256 credited) = _sums(jobId);
            ILedger.Job memory j = market.job(jobId);
            vm.assertEq(j.credited, credited);
            if (block.timestamp <= j.claimUntil) vm.assertEq(j.reserved, sum.reserved);
        }
    }

    /// nobody was paid more than it was credited with, nor more than was reserved for it
    function invariant_PaidWithinReservation() external view {
        for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
            address[] memory payees = _payees();
            for (uint256 i; i < payees.length; ++i) {
                ILedger.Account memory a = market.account(jobId, payees[i]);
                vm.assertLe(a.withdrawn, _credited(a));
                vm.assertLe(a.withdrawn, a.reserved);
            }
        }
    }

    function _sums(uint256 jobId) internal view returns (ILedger.Account memory sum, uint256 credited) {
        address[] memory payees = _payees();
        for (uint256 i; i < payees.length; ++i) {
            ILedger.Account memory a = market.account(jobId, payees[i]);
            sum.reserved += a.reserved;
            sum.withdrawn += a.withdrawn;
            credited += _credited(a);
        }
    }

    function _credited(ILedger.Account memory a) internal pure returns (uint64) {
        uint64 most = a.settled > a.vouchered ? a.settled : a.vouchered;
        return most < a.reserved ? most : a.reserved;
    }
}
