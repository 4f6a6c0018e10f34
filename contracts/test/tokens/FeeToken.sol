// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @dev A token that takes parts in a hundred on top from who pays, and lets parts of what it moves get lost. Its code
/// is in tests/vectors/fee_token.json.
contract FeeToken {
    uint8 public constant decimals = 18;
    string public constant symbol = "FEE";
    uint256 public top;
    uint256 public lost;
    mapping(address => uint256) public balanceOf;
    mapping(address => mapping(address => uint256)) public allowance;

    function setFees(uint256 top_, uint256 lost_) external {
        (top, lost) = (top_, lost_);
    }

    function mint(address to, uint256 amount) external {
        balanceOf[to] += amount;
    }

    function approve(address spender, uint256 amount) external returns (bool) {
        allowance[msg.sender][spender] = amount;
        return true;
    }

    function transfer(address to, uint256 amount) external returns (bool) {
        return _move(msg.sender, to, amount);
    }

    function transferFrom(address from, address to, uint256 amount) external returns (bool) {
        allowance[from][msg.sender] -= amount;
        return _move(from, to, amount);
    }

    function _move(address from, address to, uint256 amount) private returns (bool) {
        balanceOf[from] -= amount + amount * top / 100;
        balanceOf[to] += amount - amount * lost / 100;
        return true;
    }
}
