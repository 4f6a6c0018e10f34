// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IVouchers} from "../../src/interfaces/IVouchers.sol";
import {Fixture} from "../Fixture.sol";
import {Signing} from "../Signing.sol";
import {vm} from "../Vm.sol";

contract AddSignerTest is Fixture {
    uint256 private constant SECOND_KEY = 0x2ED;
    uint256 private jobId;

    function setUp() public override {
        super.setUp();
        jobId = open();
        reserve(jobId, ana, 10);
    }

    function add(address added) private {
        vm.prank(requester);
        market.addSigner(jobId, added);
    }

    function test_RevertWhen_TheCallerIsNotTheRequester() external {
        vm.expectRevert(ILedger.NotRequester.selector);
        market.addSigner(jobId, stranger);
    }

    function test_RevertWhen_ItIsTheZeroAddress() external {
        vm.expectRevert(ILedger.BadTerms.selector);
        add(address(0));
    }

    function test_CountVouchersOfTheNewKey() external {
        vm.expectEmit();
        emit IVouchers.SignerAdded(jobId, vm.addr(SECOND_KEY));
        add(vm.addr(SECOND_KEY));
        bytes memory signature = Signing.voucher(market, SECOND_KEY, jobId, ana, 4);
        vm.assertEq(market.redeem(jobId, ana, 4, signature), 4);
    }

    function test_CountVouchersOfTheOldKey() external {
        add(vm.addr(SECOND_KEY));
        vm.assertEq(redeem(jobId, ana, 4), 4);
    }

    function test_ConcernThisJobAlone() external {
        add(vm.addr(SECOND_KEY));
        uint256 other = open();
        reserve(other, ana, 10);
        bytes memory signature = Signing.voucher(market, SECOND_KEY, other, ana, 4);
        vm.expectRevert(ILedger.BadSignature.selector);
        market.redeem(other, ana, 4, signature);
    }
}
