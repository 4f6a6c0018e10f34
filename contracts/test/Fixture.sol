// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {GradMarket} from "../src/GradMarket.sol";
import {GradToken} from "../src/GradToken.sol";
import {IEscrow} from "../src/interfaces/IEscrow.sol";
import {Signing} from "./Signing.sol";
import {vm} from "./Vm.sol";

/// @dev A market, a requester with money, and honest moves in one line each.
abstract contract Fixture {
    uint48 internal constant MIN_WINDOW = 1 hours;
    uint48 internal constant START = 1_000_000;
    uint48 internal constant EXPIRY = START + 1 days;
    uint48 internal constant CLAIM_UNTIL = EXPIRY + 1 days;
    uint64 internal constant UNIT = 1e9;
    uint64 internal constant DEPOSIT = 1_000_000;
    uint256 internal constant SIGNER_KEY = 0x51613E;
    uint256 internal constant ANA_KEY = 0xA9A;
    uint256 internal constant BEN_KEY = 0xBE9;

    address internal immutable requester = vm.addr(0x4E9);
    address internal immutable signer = vm.addr(SIGNER_KEY);
    address internal immutable ana = vm.addr(ANA_KEY);
    address internal immutable ben = vm.addr(BEN_KEY);
    address internal immutable stranger = vm.addr(0x574A);

    GradToken internal token;
    GradMarket internal market;

    function setUp() public virtual {
        vm.warp(START);
        token = new GradToken("Gradient", "GRAD", 18, 0);
        market = deploy(IERC20(address(token)));
        token.mint(requester, 1e30);
        vm.prank(requester);
        token.approve(address(market), type(uint256).max);
    }

    function deploy(IERC20 money) internal returns (GradMarket) {
        return new GradMarket(money, MIN_WINDOW, keccak256("salt"));
    }

    function terms() internal view returns (IEscrow.OpenParams memory params) {
        params.amount = DEPOSIT;
        params.unit = UNIT;
        params.expiry = EXPIRY;
        params.claimUntil = CLAIM_UNTIL;
        params.voucherSigner = signer;
        params.specDigest = keccak256("spec");
        params.endpoint = "https://market.example";
    }

    function open() internal returns (uint256 jobId) {
        return openWith(terms());
    }

    function openWith(IEscrow.OpenParams memory params) internal returns (uint256 jobId) {
        vm.prank(requester);
        return market.openJob(params);
    }

    function reserve(uint256 jobId, address worker, uint64 amount) internal {
        vm.prank(requester);
        market.reserve(jobId, abi.encodePacked(worker, amount));
    }

    /// @dev `count` gradients at `price`, in a batch of their own
    function settle(uint256 jobId, address worker, uint48 price, uint16 count) internal {
        uint64 batch = market.job(jobId).batches;
        vm.prank(requester);
        market.settlePacked(jobId, batch, group(worker, price, count));
    }

    function group(address worker, uint48 price, uint16 count) internal pure returns (bytes memory data) {
        data = abi.encodePacked(worker, price, count);
        for (uint256 i; i < count; ++i) {
            data = bytes.concat(data, digest(worker, i));
        }
    }

    function digest(address worker, uint256 i) internal pure returns (bytes32) {
        return keccak256(abi.encode(worker, i));
    }

    function voucher(uint256 jobId, address worker, uint64 cumulative) internal view returns (bytes memory) {
        return Signing.voucher(market, SIGNER_KEY, jobId, worker, cumulative);
    }

    function redeem(uint256 jobId, address worker, uint64 cumulative) internal returns (uint64) {
        return market.redeem(jobId, worker, cumulative, voucher(jobId, worker, cumulative));
    }

    /// @dev in units
    function balance(address who) internal view returns (uint256) {
        return token.balanceOf(who) / UNIT;
    }
}
