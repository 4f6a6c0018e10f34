// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {GradMarket} from "../../src/GradMarket.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {vm} from "../Vm.sol";
import {Play} from "./Play.sol";

/// @dev What must hold of the ledger after every move, whoever plays. One campaign checks all its rules.
abstract contract Books {
    uint64 internal constant UNIT = 1e3;
    Play internal play;
    GradMarket internal market;

    function targetContracts() public view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(play);
    }

    function _payees() internal view virtual returns (address[] memory);

    function _checkBooks() internal view {
        address[] memory payees = _payees();
        uint256 paid;
        uint256 here;
        for (uint256 jobId = 1; jobId <= play.JOBS(); ++jobId) {
            ILedger.Job memory j = market.job(jobId);
            uint256 withdrawn = _checkAccounts(jobId, j, payees);
            _checkJob(jobId, j);
            paid += withdrawn;
            here += j.deposited - withdrawn;
        }
        invariant_Conservation(paid, here);
        invariant_WhatIsOwedIsHeld(here);
    }

    function _checkJob(uint256 jobId, ILedger.Job memory j) private view {
        invariant_CreditedWithinReserved(j);
        invariant_ReservedWithinDeposited(j);
        invariant_FreeIsTheRest(jobId, j);
        invariant_BatchesAreCounted(jobId, j);
        invariant_TermsStay(jobId, j);
        invariant_SignerStays(jobId);
    }

    function _checkAccounts(uint256 jobId, ILedger.Job memory j, address[] memory payees)
        private
        view
        returns (uint256 withdrawn)
    {
        uint256 credited;
        uint256 reserved;
        for (uint256 i; i < payees.length; ++i) {
            ILedger.Account memory a = market.account(jobId, payees[i]);
            invariant_PaidWithinCredit(a);
            invariant_PaidWithinReservation(a);
            withdrawn += a.withdrawn;
            credited += _credited(a);
            reserved += a.reserved;
        }
        invariant_CreditedIsTheSum(j, credited);
        invariant_ReservedIsTheSum(j, reserved);
    }

    /// deposited = refunded + paid + still here
    function invariant_Conservation(uint256 paid, uint256 here) internal view {
        vm.assertEq(play.deposited(), play.refunded() + paid + here, "deposited = refunded + paid + here");
    }

    function invariant_WhatIsOwedIsHeld(uint256 here) internal view {
        vm.assertEq(play.token().balanceOf(address(market)), here * UNIT, "held = here");
    }

    function invariant_CreditedWithinReserved(ILedger.Job memory j) internal pure {
        vm.assertLe(j.credited, j.reserved, "credited <= reserved");
    }

    function invariant_ReservedWithinDeposited(ILedger.Job memory j) internal pure {
        vm.assertLe(j.reserved, j.deposited, "reserved <= deposited");
    }

    /// before claimUntil what nobody has reserved, after it what nobody was credited with
    function invariant_FreeIsTheRest(uint256 jobId, ILedger.Job memory j) internal view {
        uint64 bounden = block.timestamp > j.claimUntil ? j.credited : j.reserved;
        vm.assertEq(market.free(jobId), j.deposited - bounden, "free = the rest");
    }

    function invariant_BatchesAreCounted(uint256 jobId, ILedger.Job memory j) internal view {
        vm.assertEq(j.batches, play.batches(jobId), "each batch counted once");
    }

    function invariant_TermsStay(uint256 jobId, ILedger.Job memory j) internal view {
        vm.assertEq(play.termsOf(j), play.termsAtOpening(jobId));
    }

    function invariant_SignerStays(uint256 jobId) internal view {
        vm.assertTrue(market.isSigner(jobId, vm.addr(0x51613E)), "the signer stays");
    }

    function invariant_PaidWithinCredit(ILedger.Account memory a) internal pure {
        vm.assertLe(a.withdrawn, _credited(a), "withdrawn <= credited");
    }

    function invariant_PaidWithinReservation(ILedger.Account memory a) internal pure {
        vm.assertLe(a.withdrawn, a.reserved, "withdrawn <= reserved");
    }

    function invariant_CreditedIsTheSum(ILedger.Job memory j, uint256 sum) internal pure {
        vm.assertEq(j.credited, sum, "credited = sum over workers");
    }

    function invariant_ReservedIsTheSum(ILedger.Job memory j, uint256 sum) internal view {
        if (block.timestamp <= j.claimUntil) vm.assertEq(j.reserved, sum, "reserved = sum over workers");
    }

    function _credited(ILedger.Account memory a) internal pure returns (uint64) {
        uint64 most = a.settled > a.vouchered ? a.settled : a.vouchered;
        return most < a.reserved ? most : a.reserved;
    }
}
