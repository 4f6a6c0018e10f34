// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @dev A token that says no by returning false, and never moves anything.
contract FalseToken {
    mapping(address => uint256) public balanceOf;

    function transfer(address, uint256) external pure returns (bool) {
        return false;
    }

    function transferFrom(address, address, uint256) external pure returns (bool) {
        return false;
    }
}
