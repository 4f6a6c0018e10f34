// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IVouchers} from "../../src/interfaces/IVouchers.sol";
import {Fixture} from "../Fixture.sol";
import {Signing} from "../Signing.sol";
import {vm} from "../Vm.sol";

contract SetPayoutForTest is Fixture {
    function signed(address to, uint64 nonce) private view returns (bytes memory) {
        return Signing.payout(market, ANA_KEY, ana, to, nonce);
    }

    function refuse(address worker, address to, uint64 nonce, bytes memory signature) private {
        vm.expectRevert(ILedger.BadSignature.selector);
        market.setPayoutFor(worker, to, nonce, signature);
    }

    function test_RevertWhen_AnotherSigned() external {
        refuse(ana, stranger, 0, Signing.payout(market, BEN_KEY, ana, stranger, 0));
        refuse(ana, ben, 0, signed(stranger, 0));
        refuse(ben, stranger, 0, signed(stranger, 0));
    }

    function test_RevertWhen_TheNonceIsOld() external {
        bytes memory first = signed(stranger, 0);
        market.setPayoutFor(ana, stranger, 0, first);
        market.setPayoutFor(ana, ben, 1, signed(ben, 1));
        refuse(ana, stranger, 0, first);
        refuse(ana, stranger, 2, first);
    }

    function test_RevertWhen_TheWorkerHasNamedOneItselfSince() external {
        bytes memory first = signed(stranger, 0);
        vm.prank(ana);
        market.setPayout(ben);
        refuse(ana, stranger, 0, first);
    }

    function test_RevertWhen_TheWorkerIsTheZeroAddress() external {
        refuse(address(0), stranger, 0, signed(stranger, 0));
        refuse(address(0), stranger, 0, "");
    }

    function test_RevertWhen_ItIsTheMarketItself() external {
        bytes memory signature = signed(address(market), 0);
        vm.expectRevert(IVouchers.BadPayout.selector);
        market.setPayoutFor(ana, address(market), 0, signature);
    }

    function test_WhenTheWorkerSigned() external {
        bytes memory signature = signed(ben, 0);
        vm.prank(stranger);
        market.setPayoutFor(ana, ben, 0, signature);
        vm.assertEq(market.payoutNonce(ana), 1);
        uint256 jobId = open();
        reserve(jobId, ana, 10);
        redeem(jobId, ana, 4);
        vm.assertEq(balance(ben), 4);
    }
}
