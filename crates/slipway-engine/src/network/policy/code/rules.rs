//! The rules about two nodes, as instructions. A set of rules is words of bits; the lowest bit that is in all sets
//! decides.

use Insn::{Alu, JumpIf, Load, Mov};
use Operand::{Imm, Of};
use slipway_sys::bpf::asm::{AluOp, Cond, Insn, Operand, R0, R1, R2, R3, R4, R5, R7, R8, R9, Reg, Size};

/// Questions about sets of rules, whose answer is in R5. They use R1 to R4.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) words: i16,
}

impl Rules {
    fn offsets(self) -> impl DoubleEndedIterator<Item = i16> {
        (0..self.words).map(|word| 8 * word)
    }

    /// R1 = the rules about what `asks` connects to at `is_asked`, a word of them.
    fn about(self, at: i16, asks: Reg, is_asked: Reg) -> [Insn<'static>; 3] {
        let of_asked = 8 + 8 * self.words;
        [
            Load(Size::Double, R1, asks, 8 + at),
            Load(Size::Double, R2, is_asked, of_asked + at),
            Alu(AluOp::And, R1, Of(R2)),
        ]
    }

    /// Rules that deny or limit, and rules about all ports, a word of them.
    fn denying(to: Reg, at: i16) -> Insn<'static> {
        Load(Size::Double, to, R9, at)
    }

    fn about_all(self, to: Reg, at: i16) -> Insn<'static> {
        Load(Size::Double, to, R9, 8 * self.words + at)
    }

    /// Passes what no rule that denies is about, either way.
    pub(super) fn quick(self) -> Vec<Insn<'static>> {
        let mut code = vec![Mov(R5, Imm(0))];
        for at in self.offsets() {
            for (asks, is_asked) in [(R7, R8), (R8, R7)] {
                code.extend(self.about(at, asks, is_asked));
                code.extend([Self::denying(R2, at), Alu(AluOp::And, R1, Of(R2)), Alu(AluOp::Or, R5, Of(R1))]);
            }
        }
        code.push(JumpIf(Cond::Eq, R5, Imm(0), "pass"));
        code
    }

    /// Not 0 where a rule about the two names ports.
    pub(super) fn named(self) -> Vec<Insn<'static>> {
        let mut code = vec![Mov(R5, Imm(0))];
        for at in self.offsets() {
            code.extend(self.about(at, R7, R8));
            code.extend([
                self.about_all(R2, at),
                Alu(AluOp::Xor, R2, Imm(-1)),
                Alu(AluOp::And, R1, Of(R2)),
                Alu(AluOp::Or, R5, Of(R1)),
            ]);
        }
        code
    }

    /// Not 0 where the first rule that fits denies. R0: the rules that name the port.
    pub(super) fn decide(self, asks: Reg, is_asked: Reg) -> Vec<Insn<'static>> {
        let mut code = vec![Mov(R5, Imm(0))];
        // From the last word on: a rule in one before it decides instead.
        for at in self.offsets().rev() {
            code.extend(self.about(at, asks, is_asked));
            code.extend([
                self.about_all(R2, at),
                Load(Size::Double, R3, R0, at),
                Alu(AluOp::Or, R2, Of(R3)),
                Alu(AluOp::And, R1, Of(R2)),
            ]);
            code.extend(negative(R2, R1));
            code.extend(is_any(R3, R1));
            code.extend([
                // All ones where none fits.
                Alu(AluOp::Sub, R3, Imm(1)),
                Alu(AluOp::And, R5, Of(R3)),
                // The first that fits.
                Alu(AluOp::And, R1, Of(R2)),
                Self::denying(R2, at),
                Alu(AluOp::And, R1, Of(R2)),
                Alu(AluOp::Or, R5, Of(R1)),
            ]);
        }
        code
    }

    /// Not 0 where a packet may pass: a rule that allows is before the first one about all ports that denies, or there
    /// is none of these.
    pub(super) fn opens_any(self, asks: Reg, is_asked: Reg) -> Vec<Insn<'static>> {
        let mut code = vec![Mov(R5, Imm(1))];
        for at in self.offsets().rev() {
            code.extend(self.about(at, asks, is_asked));
            code.extend([self.about_all(R2, at), Alu(AluOp::And, R2, Of(R1))]);
            // R4: up to the first about all ports, itself included; all where there is none.
            code.extend(negative(R3, R2));
            code.extend([
                Alu(AluOp::And, R3, Of(R2)),
                Mov(R4, Of(R3)),
                Alu(AluOp::Sub, R4, Imm(1)),
                Alu(AluOp::Or, R4, Of(R3)),
                Self::denying(R3, at),
                Alu(AluOp::Xor, R3, Imm(-1)),
                Alu(AluOp::And, R1, Of(R3)),
                Alu(AluOp::And, R1, Of(R4)),
            ]);
            code.extend(is_any(R3, R2));
            code.extend([Alu(AluOp::Xor, R3, Imm(1)), Alu(AluOp::And, R5, Of(R3))]);
            code.extend(is_any(R3, R1));
            code.push(Alu(AluOp::Or, R5, Of(R3)));
        }
        code
    }
}

/// To = −of.
fn negative(to: Reg, of: Reg) -> [Insn<'static>; 3] {
    [Mov(to, Of(of)), Alu(AluOp::Xor, to, Imm(-1)), Alu(AluOp::Add, to, Imm(1))]
}

/// To = 1 where any bit is set, else 0.
fn is_any(to: Reg, of: Reg) -> Vec<Insn<'static>> {
    let mut code = negative(to, of).to_vec();
    code.extend([Alu(AluOp::Or, to, Of(of)), Alu(AluOp::Rsh, to, Imm(63))]);
    code
}
