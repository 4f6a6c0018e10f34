// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

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
        _try(abi.encodeCall(market.settlePacked, (jobId, market.job(jobId).batches, data)));
    }

    function settleJunk(uint256 jobId, bytes calldata junk) external {
        jobId = _pickJob(jobId);
        _try(abi.encodeCall(market.settlePacked, (jobId, market.job(jobId).batches, junk)));
        _try(abi.encodeCall(market.reserve, (jobId, junk)));
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

    bool internal _succeeded;

    function _try(bytes memory move) internal returns (bytes memory answer) {
        (_succeeded, answer) = address(market).call(move);
    }
}
