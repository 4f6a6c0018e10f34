// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IVouchers} from "../../src/interfaces/IVouchers.sol";
import {Fixture} from "../Fixture.sol";
import {vm} from "../Vm.sol";

contract SetPayoutTest is Fixture {
    function set(address payout) private {
        vm.prank(ana);
        market.setPayout(payout);
    }

    function test_RevertWhen_ItIsTheMarketItself() external {
        vm.expectRevert(IVouchers.BadPayout.selector);
        set(address(market));
    }

    function test_WhenItIsZero() external {
        set(stranger);
        set(address(0));
        vm.assertEq(market.payoutOf(ana), ana);
    }

    function test_WhenItIsAnAddress() external {
        vm.expectEmit();
        emit IVouchers.PayoutSet(ana, stranger);
        set(stranger);
        vm.assertEq(market.payoutOf(ana), stranger);
        vm.assertEq(market.payoutOf(ben), ben);
    }
}
