// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {GradMarket} from "../../src/GradMarket.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {Fixture} from "../Fixture.sol";
import {Signing} from "../Signing.sol";
import {vm} from "../Vm.sol";

contract ReleaseForTest is Fixture {
    uint256 private jobId;

    function setUp() public override {
        super.setUp();
        jobId = open();
        reserve(jobId, ana, 10);
    }

    function signed(uint64 reserved, uint64 nonce) private view returns (bytes memory) {
        return Signing.release(market, ANA_KEY, jobId, ana, reserved, nonce);
    }

    function refuse(address worker, uint64 reserved, uint64 nonce, bytes memory signature) private {
        vm.expectRevert(ILedger.BadSignature.selector);
        market.releaseFor(jobId, worker, reserved, nonce, signature);
    }

    function test_RevertWhen_AnotherSigned() external {
        refuse(ana, 4, 0, Signing.release(market, BEN_KEY, jobId, ana, 4, 0));
        refuse(ana, 3, 0, signed(4, 0));
        refuse(ben, 4, 0, signed(4, 0));
    }

    function test_RevertWhen_TheSignatureIsMalleable() external {
        refuse(ana, 4, 0, Signing.malleable(signed(4, 0)));
        refuse(ana, 4, 0, Signing.short(signed(4, 0)));
    }

    function test_RevertWhen_TheSignatureIsOfAnotherInstance() external {
        vm.warp(START + 1);
        GradMarket other = deploy(IERC20(address(token)));
        refuse(ana, 4, 0, Signing.release(other, ANA_KEY, jobId, ana, 4, 0));
    }

    function test_RevertWhen_TheNonceIsOld() external {
        bytes memory signature = signed(4, 0);
        market.releaseFor(jobId, ana, 4, 0, signature);
        reserve(jobId, ana, 6);
        refuse(ana, 4, 0, signature);
        refuse(ana, 4, 1, signature);
    }

    function test_RevertWhen_TheWorkerIsTheZeroAddress() external {
        refuse(address(0), 0, 0, signed(4, 0));
        refuse(address(0), 0, 0, "");
    }

    function test_RevertWhen_ClaimUntilHasPassed() external {
        vm.warp(CLAIM_UNTIL + 1);
        bytes memory signature = signed(4, 0);
        vm.expectRevert(abi.encodeWithSelector(ILedger.TooLate.selector, CLAIM_UNTIL));
        market.releaseFor(jobId, ana, 4, 0, signature);
    }

    function test_WhenTheWorkerSigned() external {
        bytes memory signature = signed(4, 0);
        vm.prank(stranger);
        market.releaseFor(jobId, ana, 4, 0, signature);
        vm.assertEq(market.account(jobId, ana).reserved, 4);
        vm.assertEq(market.free(jobId), DEPOSIT - 4);
        market.releaseFor(jobId, ana, 3, 1, signed(3, 1));
        vm.assertEq(market.account(jobId, ana).reserved, 3);
    }
}
