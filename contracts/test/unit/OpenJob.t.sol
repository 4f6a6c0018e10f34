// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {GradMarket} from "../../src/GradMarket.sol";
import {IEscrow} from "../../src/interfaces/IEscrow.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {Fixture} from "../Fixture.sol";
import {HostileToken} from "../tokens/HostileToken.sol";
import {vm} from "../Vm.sol";

contract OpenJobTest is Fixture {
    function refuse(IEscrow.OpenParams memory params) private {
        vm.expectRevert(ILedger.BadTerms.selector);
        openWith(params);
    }

    function slashing() private view returns (IEscrow.OpenParams memory params) {
        params = terms();
        (params.slashWindow, params.contestWindow, params.decisionWindow) = (1, uint32(MIN_WINDOW), uint32(MIN_WINDOW));
        params.bond = 1;
    }

    function test_RevertWhen_TheUnitIsZero() external {
        IEscrow.OpenParams memory params = terms();
        params.unit = 0;
        refuse(params);
    }

    function test_RevertWhen_ThereIsNoSigner() external {
        IEscrow.OpenParams memory params = terms();
        params.voucherSigner = address(0);
        refuse(params);
    }

    function test_RevertWhen_ExpiryIsNotInTheFuture() external {
        IEscrow.OpenParams memory params = terms();
        params.expiry = START;
        refuse(params);
        params.expiry = START + 1;
        openWith(params);
    }

    function test_RevertWhen_TheClaimWindowIsShorterThanTheLeast() external {
        IEscrow.OpenParams memory params = terms();
        params.claimUntil = params.expiry + MIN_WINDOW - 1;
        refuse(params);
        params.claimUntil = params.expiry + MIN_WINDOW;
        openWith(params);
    }

    function test_RevertWhen_TheContestWindowIsTooShort() external {
        IEscrow.OpenParams memory params = slashing();
        params.contestWindow = uint32(MIN_WINDOW) - 1;
        refuse(params);
    }

    function test_RevertWhen_TheDecisionWindowIsTooShort() external {
        IEscrow.OpenParams memory params = slashing();
        params.decisionWindow = uint32(MIN_WINDOW) - 1;
        refuse(params);
    }

    function test_RevertWhen_ThereIsNoBond() external {
        IEscrow.OpenParams memory params = slashing();
        params.bond = 0;
        refuse(params);
    }

    function test_WhenTheSlashTermsAreFair() external {
        IEscrow.OpenParams memory params = slashing();
        (params.slashWindow, params.contestWindow, params.decisionWindow, params.bond) = (7000, 8000, 9000, 5);
        ILedger.Job memory opened = market.job(openWith(params));
        vm.assertEq(opened.slashWindow, 7000);
        vm.assertEq(opened.contestWindow, 8000);
        vm.assertEq(opened.decisionWindow, 9000);
        vm.assertEq(opened.bond, 5);
    }

    function test_RevertWhen_NothingOfTheDepositArrives() external {
        HostileToken hostile = _hostile();
        hostile.setFee(100);
        vm.expectRevert(ILedger.NothingArrived.selector);
        open();
    }

    function test_WhenTheAmountIsZero() external {
        IEscrow.OpenParams memory params = terms();
        params.amount = 0;
        vm.prank(stranger);
        uint256 jobId = market.openJob(params);
        vm.assertEq(market.job(jobId).deposited, 0);
        vm.assertEq(market.job(jobId).requester, stranger);
    }

    function test_WhenTheTokenTakesAFee() external {
        _hostile().setFee(10);
        vm.assertEq(market.free(open()), DEPOSIT * 9 / 10);
    }

    function test_WhenTheTokenGivesMoreThanWasAsked() external {
        _hostile().setBonus(10);
        vm.assertEq(market.free(open()), DEPOSIT);
    }

    function test_NumberJobsFromOne() external {
        vm.assertEq(open(), 1);
        vm.assertEq(open(), 2);
        vm.assertEq(market.jobCount(), 2);
    }

    function test_KeepTheTerms() external {
        ILedger.Job memory opened = market.job(open());
        vm.assertEq(opened.requester, requester);
        vm.assertEq(opened.expiry, EXPIRY);
        vm.assertEq(opened.claimUntil, CLAIM_UNTIL);
        vm.assertEq(opened.unit, UNIT);
        vm.assertEq(opened.deposited, DEPOSIT);
        vm.assertEq(opened.reserved + opened.credited + opened.batches + opened.slashWindow, 0);
        vm.assertEq(opened.sender, address(0));
        vm.assertTrue(market.isSigner(1, signer));
        vm.assertFalse(market.isSigner(1, requester));
    }

    function test_TakeTheDepositFromTheCaller() external {
        uint256 before = balance(requester);
        open();
        vm.assertEq(before - balance(requester), DEPOSIT);
        vm.assertEq(balance(address(market)), DEPOSIT);
    }

    function test_EmitAllAWorkerNeeds() external {
        vm.expectEmit();
        emit IEscrow.JobOpened(1, requester, DEPOSIT, terms());
        open();
    }

    function _hostile() private returns (HostileToken hostile) {
        hostile = new HostileToken();
        market = deploy(IERC20(address(hostile)));
        hostile.mint(requester, 1e30);
        vm.prank(requester);
        hostile.approve(address(market), type(uint256).max);
    }
}
