// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {GradMarket} from "../../src/GradMarket.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {IVouchers} from "../../src/interfaces/IVouchers.sol";
import {Fixture} from "../Fixture.sol";
import {Signing} from "../Signing.sol";
import {vm} from "../Vm.sol";

contract RedeemTest is Fixture {
    uint256 private jobId;

    function setUp() public override {
        super.setUp();
        jobId = open();
        reserve(jobId, ana, 10);
    }

    function refuse(address worker, uint64 cumulative, bytes memory signature) private {
        vm.expectRevert(ILedger.BadSignature.selector);
        market.redeem(jobId, worker, cumulative, signature);
    }

    function test_RevertWhen_ThereIsNoSuchJob() external {
        bytes memory signature = voucher(2, ana, 4);
        vm.expectRevert(abi.encodeWithSelector(ILedger.NoSuchJob.selector, 2));
        market.redeem(2, ana, 4, signature);
    }

    function test_RevertWhen_ClaimUntilHasPassed() external {
        bytes memory signature = voucher(jobId, ana, 4);
        vm.warp(CLAIM_UNTIL + 1);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooLate.selector, CLAIM_UNTIL));
        market.redeem(jobId, ana, 4, signature);
    }

    function test_WhenItIsTheLastSecond() external {
        vm.warp(CLAIM_UNTIL);
        vm.assertEq(redeem(jobId, ana, 4), 4);
    }

    function test_RevertWhen_AnotherKeySigned() external {
        refuse(ana, 4, Signing.voucher(market, ANA_KEY, jobId, ana, 4));
        refuse(ana, 4, "");
        refuse(ana, 4, new bytes(65));
    }

    function test_RevertWhen_TheAmountIsNotTheSignedOne() external {
        refuse(ana, 5, voucher(jobId, ana, 4));
    }

    function test_RevertWhen_ItIsForAnotherWorker() external {
        reserve(jobId, ben, 10);
        refuse(ben, 4, voucher(jobId, ana, 4));
    }

    function test_RevertWhen_ItIsOfAnotherJob() external {
        refuse(ana, 4, voucher(open(), ana, 4));
    }

    function test_RevertWhen_ItIsOfAnotherInstance() external {
        bytes32 other = keccak256("another history of this chain");
        refuse(ana, 4, Signing.sign(SIGNER_KEY, Signing.voucherDigest(market, other, jobId, ana, 4)));
    }

    function test_RevertWhen_ItIsOfAnotherChain() external {
        bytes memory signature = voucher(jobId, ana, 4);
        vm.chainId(block.chainid + 1);
        refuse(ana, 4, signature);
    }

    function test_RevertWhen_ItIsOfAnotherContract() external {
        GradMarket other = deploy(IERC20(address(token)));
        refuse(ana, 4, Signing.voucher(other, SIGNER_KEY, jobId, ana, 4));
    }

    function test_RevertWhen_TheSignatureIsMalleable() external {
        refuse(ana, 4, Signing.malleable(voucher(jobId, ana, 4)));
    }

    function test_RevertWhen_TheSignatureIsShort() external {
        refuse(ana, 4, Signing.short(voucher(jobId, ana, 4)));
    }

    function test_WhenCodeStandsOnTheSignersAddress() external {
        vm.etch(signer, hex"60006000fd");
        vm.assertEq(redeem(jobId, ana, 4), 4);
    }

    function test_WhenItWasRedeemedBefore() external {
        redeem(jobId, ana, 4);
        vm.assertEq(redeem(jobId, ana, 4), 0);
        vm.assertEq(balance(ana), 4);
    }

    function test_WhenAnOlderOneComesLater() external {
        redeem(jobId, ana, 4);
        vm.assertEq(redeem(jobId, ana, 3), 0);
        vm.assertEq(market.account(jobId, ana).vouchered, 4);
        vm.assertEq(balance(ana), 4);
    }

    function test_PayUpToTheReservation() external {
        vm.assertEq(redeem(jobId, ana, 14), 10);
        vm.assertEq(market.job(jobId).credited, 10);
    }

    function test_PayTheRestWhenTheReservationHasGrown() external {
        redeem(jobId, ana, 14);
        reserve(jobId, ana, 10);
        vm.assertEq(redeem(jobId, ana, 14), 4);
        vm.assertEq(market.job(jobId).credited, 14);
    }

    function test_WhenTheWorkerHasNamedAPayoutAddress() external {
        vm.prank(ana);
        market.setPayout(ben);
        redeem(jobId, ana, 4);
        vm.assertEq(balance(ana), 0);
        vm.assertEq(balance(ben), 4);
    }

    function test_PayTheWorkerWhoeverSendsIt() external {
        bytes memory signature = voucher(jobId, ana, 4);
        vm.prank(stranger);
        vm.assertEq(market.redeem(jobId, ana, 4, signature), 4);
        vm.assertEq(balance(ana), 4);
        vm.assertEq(market.account(jobId, ana).withdrawn, 4);
        vm.assertEq(market.job(jobId).credited, 4);
    }

    function test_PayOnlyWhatIsNew() external {
        redeem(jobId, ana, 4);
        settle(jobId, ana, 6, 1);
        vm.assertEq(redeem(jobId, ana, 9), 5);
        vm.assertEq(balance(ana), 9);
        vm.assertEq(market.job(jobId).credited, 9);
    }

    function test_EmitPaid() external {
        vm.expectEmit();
        emit IVouchers.Paid(jobId, ana, ana, 4);
        redeem(jobId, ana, 4);
    }
}
