// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ledger} from "./Ledger.sol";
import {AccountWord} from "./libraries/AccountWord.sol";
import {Packed} from "./libraries/Packed.sol";

/// @title Reservations, releases and the early close.
abstract contract Reservations is Ledger {
    bytes32 private constant RELEASE_TYPEHASH =
        keccak256("Release(bytes32 instance,uint256 job,address worker,uint64 reserved,uint64 nonce)");

    mapping(uint256 jobId => mapping(address worker => uint64)) public override releaseNonce;

    function reserve(uint256 jobId, bytes calldata data) external override {
        Job storage j = _jobOfSender(jobId);
        _until(j.expiry);
        uint256 rows = Packed.rows(data);
        uint256 added;
        uint64 credited;
        for (uint256 i; i < rows; ++i) {
            (address worker, uint64 amount) = Packed.row(data, i);
            credited += _reserve(jobId, worker, amount);
            added += amount;
        }
        uint64 available = _unreserved(j);
        if (added > available) revert Overdrawn(available);
        j.reserved += uint64(added);
        j.credited += credited;
    }

    function release(uint256 jobId, uint64 reserved) external override {
        _release(jobId, msg.sender, reserved);
    }

    function releaseFor(uint256 jobId, address worker, uint64 reserved, uint64 nonce, bytes calldata signature)
        external
        override
    {
        if (!_isRelease(jobId, worker, reserved, nonce, signature)) revert BadSignature();
        _release(jobId, worker, reserved);
    }

    function closeJob(uint256 jobId, SignedRelease[] calldata releases)
        external
        override
        nonReentrant
        returns (uint64 amount)
    {
        Job storage j = _jobOfRequester(jobId);
        _until(j.claimUntil);
        for (uint256 i; i < releases.length; ++i) {
            _releaseOrSkip(jobId, i, releases[i]);
        }
        if (j.expiry >= block.timestamp) j.expiry = uint48(block.timestamp - 1);
        emit JobClosed(jobId);
        amount = _unreserved(j);
        _giveBack(jobId, j, amount);
    }

    function _releaseOrSkip(uint256 jobId, uint256 index, SignedRelease calldata row) private {
        if (_isRelease(jobId, row.worker, row.reserved, row.nonce, row.signature)) {
            _release(jobId, row.worker, row.reserved);
        } else {
            emit ReleaseSkipped(jobId, index, row.worker);
        }
    }

    function _isRelease(uint256 jobId, address worker, uint64 reserved, uint64 nonce, bytes calldata signature)
        private
        view
        returns (bool)
    {
        address signer = _signerOf(_releaseHash(jobId, worker, reserved, nonce), signature);
        return signer != address(0) && signer == worker && nonce == releaseNonce[jobId][worker];
    }

    /// @return newlyCredited what a batch or voucher beyond the old reservation gains by the new one
    function _reserve(uint256 jobId, address worker, uint64 amount) private returns (uint64 newlyCredited) {
        Account storage stored = _accounts[jobId][worker];
        uint256 row = AccountWord.read(stored);
        uint64 before = AccountWord.credited(row);
        (row, newlyCredited) = AccountWord.stamped(AccountWord.add(row, amount, 0), before);
        AccountWord.write(stored, row);
        emit Reserved(jobId, worker, amount, AccountWord.reserved(row));
    }

    function _release(uint256 jobId, address worker, uint64 reserved) private {
        Job storage j = _job(jobId);
        _until(j.claimUntil);
        Account storage stored = _accounts[jobId][worker];
        uint256 row = AccountWord.read(stored);
        uint64 least = AccountWord.credited(row);
        uint64 most = AccountWord.reserved(row);
        if (reserved < least) reserved = least;
        if (reserved > most) reserved = most;
        unchecked {
            AccountWord.write(stored, row - (most - reserved));
            j.reserved -= most - reserved; // the sum over the workers
        }
        emit Released(jobId, worker, reserved, releaseNonce[jobId][worker]++);
    }

    function _releaseHash(uint256 jobId, address worker, uint64 reserved, uint64 nonce) private view returns (bytes32) {
        return keccak256(abi.encode(RELEASE_TYPEHASH, INSTANCE, jobId, worker, reserved, nonce));
    }
}
