// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IEscrow} from "../../src/interfaces/IEscrow.sol";
import {ILedger} from "../../src/interfaces/ILedger.sol";
import {Fixture} from "../Fixture.sol";
import {bound, vm} from "../Vm.sol";

contract MoneyFuzz is Fixture {
    uint256 private jobId;

    function setUp() public override {
        super.setUp();
        jobId = open();
    }

    /// whatever a batch and a voucher say, in either order: the larger of the two is paid, within the reservation
    function testFuzz_BatchAndVoucherPayTheLarger(uint32 settled, uint32 vouchered, uint32 reserved, bool batchFirst)
        external
    {
        reserved = uint32(bound(reserved, 0, DEPOSIT));
        reserve(jobId, ana, reserved);
        if (batchFirst) settle(jobId, ana, settled, 1);
        redeem(jobId, ana, vouchered);
        if (!batchFirst) settle(jobId, ana, settled, 1);
        market.collect(jobId, ana);
        uint256 larger = settled > vouchered ? settled : vouchered;
        vm.assertEq(balance(ana), larger < reserved ? larger : reserved);
    }

    /// a worker's reservation is out of reach for every other move
    function testFuzz_AReservationCannotBeDrained(uint64 mine, uint64 theirs, uint64 out) external {
        mine = uint64(bound(mine, 1, DEPOSIT));
        reserve(jobId, ana, mine);
        uint64 rest = DEPOSIT - mine;
        theirs = uint64(bound(theirs, 0, rest));
        reserve(jobId, ben, theirs);
        redeem(jobId, ben, type(uint64).max);
        out = uint64(bound(out, 0, rest - theirs));
        vm.prank(requester);
        market.withdrawFree(jobId, out);
        vm.assertEq(redeem(jobId, ana, mine), mine);
    }

    function testFuzz_AReleaseStaysBetweenCreditAndReservation(uint64 reserved, uint64 credited, uint64 asked)
        external
    {
        reserved = uint64(bound(reserved, 0, DEPOSIT));
        credited = uint64(bound(credited, 0, reserved));
        reserve(jobId, ana, reserved);
        redeem(jobId, ana, credited);
        vm.prank(ana);
        market.release(jobId, asked);
        uint64 left = market.account(jobId, ana).reserved;
        uint64 expected = asked < credited ? credited : (asked > reserved ? reserved : asked);
        vm.assertEq(left, expected);
        vm.assertEq(market.free(jobId), DEPOSIT - left);
    }

    function testFuzz_AForeignSignatureNeverPays(bytes calldata signature, uint64 cumulative) external {
        reserve(jobId, ana, 10);
        vm.expectRevert(ILedger.BadSignature.selector);
        market.redeem(jobId, ana, cumulative, signature);
    }

    function testFuzz_TheUnitScalesEveryTransfer(uint64 unit, uint16 amount) external {
        vm.assume(unit != 0 && amount != 0);
        token.mint(requester, uint256(unit) * amount);
        IEscrow.OpenParams memory params = terms();
        (params.unit, params.amount) = (unit, amount);
        jobId = openWith(params);
        reserve(jobId, ana, amount);
        redeem(jobId, ana, amount);
        vm.assertEq(token.balanceOf(ana), uint256(unit) * amount);
    }
}
