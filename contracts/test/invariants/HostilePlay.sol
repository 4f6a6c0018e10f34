// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {GradMarket} from "../../src/GradMarket.sol";
import {IReservations} from "../../src/interfaces/IReservations.sol";
import {Signing} from "../Signing.sol";
import {bound, vm} from "../Vm.sol";
import {Play} from "./Play.sol";

/// @dev The same play with a requester that tries everything on its side, and a stranger. Hostile moves may fail.
contract HostilePlay is Play {
    struct SignedRelease {
        uint256 jobId;
        address worker;
        uint64 reserved;
        uint64 nonce;
        bytes signature;
    }

    uint256 private constant SYBIL_KEY = 0x5B11;
    address public immutable sybil = vm.addr(SYBIL_KEY);
    address public immutable stranger = vm.addr(0x574A);
    SignedRelease[] private _held;
    GradMarket private immutable _elsewhere;
    /// moves that must never succeed, and did
    uint256 public foreignRedeems;
    uint256 public replays;

    constructor() {
        _elsewhere = new GradMarket(market.token(), CLAIM, keccak256("elsewhere"));
    }

    /// a worker signs to leave, and the requester keeps the signature for later
    function holdRelease(uint256 jobId, uint256 pick) external {
        jobId = _pickJob(jobId);
        address worker = _pickWorker(pick);
        uint64 nonce = market.releaseNonce(jobId, worker);
        uint64 to = earned[jobId][worker];
        _held.push(SignedRelease(jobId, worker, to, nonce, _signRelease(jobId, worker, to, nonce)));
        leaving[jobId][worker] = true;
    }

    /// the requester sends one, now or again
    function sendHeldRelease(uint256 which) external {
        if (_held.length == 0) return;
        SignedRelease memory held = _held[bound(which, 0, _held.length - 1)];
        _try(abi.encodeCall(market.releaseFor, (held.jobId, held.worker, held.reserved, held.nonce, held.signature)));
    }

    function forgeRelease(uint256 jobId, uint256 pick, uint64 to) external {
        jobId = _pickJob(jobId);
        address worker = _pickWorker(pick);
        uint64 nonce = market.releaseNonce(jobId, worker);
        bytes memory forged = Signing.release(market, SIGNER_KEY, jobId, worker, to, nonce);
        _try(abi.encodeCall(market.releaseFor, (jobId, worker, to, nonce, forged)));
        _try(abi.encodeCall(market.release, (jobId, to)));
    }

    function drainToSybil(uint256 jobId, uint64 amount) external {
        jobId = _pickJob(jobId);
        _try(abi.encodeCall(market.reserve, (jobId, abi.encodePacked(sybil, amount))));
        _try(abi.encodeCall(market.reserve, (jobId, abi.encodePacked(sybil, market.free(jobId)))));
        bytes memory signature = Signing.voucher(market, SIGNER_KEY, jobId, sybil, type(uint64).max);
        _try(abi.encodeCall(market.redeem, (jobId, sybil, type(uint64).max, signature)));
    }

    /// a batch that credits what nobody earned
    function settleAnything(uint256 jobId, uint256 pick, uint48 price, bool toSybil) external {
        jobId = _pickJob(jobId);
        address payee = toSybil ? sybil : _pickWorker(pick);
        bytes memory data = abi.encodePacked(payee, price, uint16(1), keccak256("nothing"));
        _settle(jobId, batches[jobId], data);
        uint64 next = batches[jobId];
        if (next != 0) _settle(jobId, next - 1, data);
        if (batches[jobId] != next) ++replays;
    }

    function settleJunk(uint256 jobId, bytes calldata junk) external {
        jobId = _pickJob(jobId);
        _settle(jobId, batches[jobId], junk);
        _try(abi.encodeCall(market.reserve, (jobId, junk)));
    }

    /// a voucher that is good elsewhere: in another history, on another chain, for another contract or job
    function redeemForeign(uint256 jobId, uint256 pick, uint256 where) external {
        jobId = _pickJob(jobId);
        address worker = _pickWorker(pick);
        bytes32 instance = market.INSTANCE();
        bytes[4] memory foreign = [
            Signing.sign(SIGNER_KEY, Signing.voucherDigest(market, keccak256("old"), jobId, worker, 1e9)),
            _onAnotherChain(jobId, worker),
            Signing.voucher(_elsewhere, SIGNER_KEY, jobId, worker, 1e9),
            Signing.sign(SIGNER_KEY, Signing.voucherDigest(market, instance, JOBS + 1 - jobId, worker, 1e9))
        ];
        _try(abi.encodeCall(market.redeem, (jobId, worker, 1e9, foreign[where % 4])));
        if (_succeeded) ++foreignRedeems;
    }

    function addSigner(uint256 jobId, uint256 key) external {
        _try(abi.encodeCall(market.addSigner, (_pickJob(jobId), vm.addr(bound(key, 1, 1000)))));
    }

    /// closes with what releases it holds; an honest requester would ask first
    function closeEarly(uint256 jobId, uint256 which) external {
        jobId = _pickJob(jobId);
        if (_held.length == 0 || which % 8 != 0) return;
        IReservations.SignedRelease[] memory rows = new IReservations.SignedRelease[](_held.length);
        for (uint256 i; i < rows.length; ++i) {
            SignedRelease memory held = _held[i];
            rows[i] = IReservations.SignedRelease(held.worker, held.reserved, held.nonce, held.signature);
        }
        bytes memory got = _try(abi.encodeCall(market.closeJob, (jobId, rows)));
        if (_succeeded) refunded += abi.decode(got, (uint64));
    }

    function takeTooMuch(uint256 jobId, uint64 amount) external {
        jobId = _pickJob(jobId);
        bytes memory got = _try(abi.encodeCall(market.withdrawFree, (jobId, amount)));
        if (_succeeded) refunded += amount;
        got = _try(abi.encodeCall(market.refund, (jobId)));
        if (_succeeded) refunded += abi.decode(got, (uint64));
    }

    function nameSender(uint256 jobId, uint256 pick) external {
        _try(abi.encodeCall(market.setSender, (_pickJob(jobId), _pickWorker(pick))));
    }

    function strangerTries(uint256 jobId, uint64 amount) external {
        jobId = _pickJob(jobId);
        bytes memory mine = Signing.voucher(market, SYBIL_KEY, jobId, stranger, amount);
        bytes[4] memory moves = [
            abi.encodeCall(market.redeem, (jobId, stranger, amount, mine)),
            abi.encodeCall(market.withdrawFree, (jobId, amount)),
            abi.encodeCall(market.refund, (jobId)),
            abi.encodeCall(market.reserve, (jobId, abi.encodePacked(stranger, amount)))
        ];
        for (uint256 i; i < moves.length; ++i) {
            vm.prank(stranger);
            _try(moves[i]);
        }
    }

    function _settle(uint256 jobId, uint64 batch, bytes memory data) private {
        _try(abi.encodeCall(market.settlePacked, (jobId, batch, data)));
        if (_succeeded) ++batches[jobId];
    }

    function _onAnotherChain(uint256 jobId, address worker) private returns (bytes memory signature) {
        uint256 here = block.chainid;
        vm.chainId(here + 1);
        signature = Signing.voucher(market, SIGNER_KEY, jobId, worker, 1e9);
        vm.chainId(here);
    }

    bool internal _succeeded;

    function _try(bytes memory move) internal returns (bytes memory answer) {
        (_succeeded, answer) = address(market).call(move);
    }
}
