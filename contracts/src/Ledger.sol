// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";
import {IGradMarket} from "./interfaces/IGradMarket.sol";
import {AccountWord} from "./libraries/AccountWord.sol";

/// @title What the other parts share: the rows, who may act and until when, and how tokens come in.
abstract contract Ledger is IGradMarket, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    bytes32 private constant DOMAIN_TYPEHASH =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");

    uint256 private immutable _chainId;
    bytes32 private immutable _domain;
    IERC20 public immutable override token;
    bytes32 public immutable override INSTANCE;
    uint48 public immutable override minWindow;

    uint256 public override jobCount;
    mapping(uint256 jobId => Job) internal _jobs;
    mapping(uint256 jobId => mapping(address worker => Account)) internal _accounts;
    /// @dev units of locked pay in open cases
    mapping(uint256 jobId => mapping(address worker => uint64)) internal _vestAccused;

    constructor(IERC20 token_, uint48 minWindow_, bytes32 salt) {
        _chainId = block.chainid;
        _domain = _domainSeparator();
        token = token_;
        minWindow = minWindow_;
        INSTANCE = keccak256(abi.encode(salt, blockhash(block.number - 1), block.timestamp));
    }

    function job(uint256 jobId) external view override returns (Job memory) {
        return _job(jobId);
    }

    function account(uint256 jobId, address worker) external view override returns (Account memory) {
        return _accounts[jobId][worker];
    }

    /// @dev Refuses the zero address, which is what a bad signature recovers to.
    function _addSigner(uint256 jobId, address signer) internal virtual;

    function _job(uint256 jobId) internal view returns (Job storage found) {
        found = _jobs[jobId];
        if (found.requester == address(0)) revert NoSuchJob(jobId);
    }

    function _jobOfRequester(uint256 jobId) internal view returns (Job storage found) {
        found = _job(jobId);
        if (msg.sender != found.requester) revert NotRequester();
    }

    function _jobOfSender(uint256 jobId) internal view returns (Job storage found) {
        found = _job(jobId);
        if (msg.sender != found.requester && msg.sender != found.sender) revert NotSender();
    }

    function _until(uint256 last) internal view {
        if (block.timestamp > last) revert TooLate(last);
    }

    function _after(uint256 last) internal view {
        if (block.timestamp <= last) revert TooEarly(last + 1);
    }

    /// @dev what is reserved for nobody; never below zero, since only this much is ever reserved or given back
    function _unreserved(Job storage j) internal view returns (uint64) {
        unchecked {
            return j.deposited - j.reserved;
        }
    }

    /// @dev What vesting withholds of the unpaid part of an account. One storage read where the lock has passed; before,
    /// open cases are of what is locked anyway.
    function _locked(Job storage j, uint256 jobId, address worker, uint256 row) internal view returns (uint64) {
        uint256 window = j.vestWindow;
        if (window == 0) return 0;
        if (block.timestamp > AccountWord.creditedAt(row) + window) return _vestAccused[jobId][worker];
        uint64 unpaid = AccountWord.unpaid(row);
        uint64 vest = j.vest;
        return unpaid < vest ? unpaid : vest;
    }

    /// @dev Pulls `amount` of the token's smallest unit from the caller and tells what arrived, at most `amount`.
    function _pull(uint256 amount) internal returns (uint256 arrived) {
        uint256 before = token.balanceOf(address(this));
        token.safeTransferFrom(msg.sender, address(this), amount);
        arrived = token.balanceOf(address(this)) - before;
        if (arrived > amount) arrived = amount;
    }

    /// @dev Takes `amount` units out of the job, for the requester; the caller has made sure that they are its own.
    function _giveBack(uint256 jobId, Job storage j, uint64 amount) internal {
        j.deposited -= amount;
        emit Refunded(jobId, amount);
        token.safeTransfer(j.requester, uint256(amount) * j.unit);
    }

    /// @dev the digest that EIP-712 signs; a chain that splits off has another domain
    function _typedDigest(bytes32 structHash) internal view returns (bytes32) {
        bytes32 domain = block.chainid == _chainId ? _domain : _domainSeparator();
        return MessageHashUtils.toTypedDataHash(domain, structHash);
    }

    function _domainSeparator() private view returns (bytes32) {
        bytes32 name = keccak256("GradMarket");
        return keccak256(abi.encode(DOMAIN_TYPEHASH, name, keccak256("1"), block.chainid, address(this)));
    }

    /// @dev ECDSA alone: 65 bytes, low s, and no question to code at the signer's address. Zero: no signature.
    function _signerOf(bytes32 structHash, bytes calldata signature) internal view returns (address signer) {
        (signer,,) = ECDSA.tryRecoverCalldata(_typedDigest(structHash), signature);
    }
}
