// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {GradMarket} from "../src/GradMarket.sol";
import {GradToken} from "../src/GradToken.sol";
import {vm} from "./Vm.sol";

/// @dev Signatures as requester and worker make them off-chain: nothing is asked of the contract but its INSTANCE.
library Signing {
    bytes32 private constant DOMAIN_TYPEHASH =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
    bytes32 private constant VOUCHER_TYPEHASH =
        keccak256("Voucher(bytes32 instance,uint256 job,address worker,uint64 cumulative)");
    bytes32 private constant RELEASE_TYPEHASH =
        keccak256("Release(bytes32 instance,uint256 job,address worker,uint64 reserved,uint64 nonce)");
    bytes32 private constant PAYOUT_TYPEHASH =
        keccak256("Payout(bytes32 instance,address worker,address payout,uint64 nonce)");
    bytes32 private constant RULING_TYPEHASH =
        keccak256("Ruling(bytes32 instance,bytes32 accusation,uint128 amount,bool guilty)");
    bytes32 private constant WATCH_TYPEHASH = keccak256("Watch(bytes32 instance,address worker,address watcher)");
    bytes32 private constant PERMIT_TYPEHASH =
        keccak256("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)");

    function voucher(GradMarket market, uint256 key, uint256 jobId, address worker, uint64 cumulative)
        internal
        view
        returns (bytes memory)
    {
        return sign(key, voucherDigest(market, market.INSTANCE(), jobId, worker, cumulative));
    }

    function voucherDigest(GradMarket market, bytes32 instance, uint256 jobId, address worker, uint64 cumulative)
        internal
        view
        returns (bytes32)
    {
        return digest(address(market), abi.encode(VOUCHER_TYPEHASH, instance, jobId, worker, cumulative));
    }

    function release(GradMarket market, uint256 key, uint256 jobId, address worker, uint64 reserved, uint64 nonce)
        internal
        view
        returns (bytes memory)
    {
        bytes memory members = abi.encode(RELEASE_TYPEHASH, market.INSTANCE(), jobId, worker, reserved, nonce);
        return sign(key, digest(address(market), members));
    }

    function payout(GradMarket market, uint256 key, address worker, address to, uint64 nonce)
        internal
        view
        returns (bytes memory)
    {
        return sign(key, digest(address(market), abi.encode(PAYOUT_TYPEHASH, market.INSTANCE(), worker, to, nonce)));
    }

    function ruling(GradMarket market, uint256 key, bytes32 caseId, uint128 amount, bool guilty)
        internal
        view
        returns (bytes memory)
    {
        bytes memory members = abi.encode(RULING_TYPEHASH, market.INSTANCE(), caseId, amount, guilty);
        return sign(key, digest(address(market), members));
    }

    function watch(GradMarket market, uint256 key, address worker, address watcher)
        internal
        view
        returns (bytes memory)
    {
        bytes memory members = abi.encode(WATCH_TYPEHASH, market.INSTANCE(), worker, watcher);
        return sign(key, digest(address(market), members));
    }

    function permit(GradToken token, uint256 key, address spender, uint256 value, uint256 deadline)
        internal
        view
        returns (uint8 v, bytes32 r, bytes32 s)
    {
        address owner = vm.addr(key);
        bytes32 members = keccak256(abi.encode(PERMIT_TYPEHASH, owner, spender, value, token.nonces(owner), deadline));
        return vm.sign(key, keccak256(abi.encodePacked(hex"1901", token.DOMAIN_SEPARATOR(), members)));
    }

    function digest(address market, bytes memory members) internal view returns (bytes32) {
        bytes32 separator =
            keccak256(abi.encode(DOMAIN_TYPEHASH, keccak256("GradMarket"), keccak256("1"), block.chainid, market));
        return keccak256(abi.encodePacked(hex"1901", separator, keccak256(members)));
    }

    function sign(uint256 key, bytes32 message) internal pure returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, message);
        return abi.encodePacked(r, s, v);
    }

    /// @dev the other signature of the same key over the same message, with s in the upper half
    function malleable(bytes memory signature) internal pure returns (bytes memory) {
        (bytes32 r, bytes32 s, uint8 v) = parts(signature);
        uint256 order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141;
        return abi.encodePacked(r, bytes32(order - uint256(s)), v == 27 ? 28 : 27);
    }

    /// @dev the same signature in the 64 bytes of EIP-2098
    function short(bytes memory signature) internal pure returns (bytes memory) {
        (bytes32 r, bytes32 s, uint8 v) = parts(signature);
        return abi.encodePacked(r, bytes32(uint256(s) | (uint256(v - 27) << 255)));
    }

    function parts(bytes memory signature) private pure returns (bytes32 r, bytes32 s, uint8 v) {
        assembly ("memory-safe") {
            r := mload(add(signature, 32))
            s := mload(add(signature, 64))
            v := byte(0, mload(add(signature, 96)))
        }
    }
}
