//! The fields of a lost host.

use crate::bootstrap::{CarrierEnd, CarrierKind};
use crate::events::Lost;
use crate::job::CloseReason;
use crate::json::Object;
use crate::signal::Signal;
use alloc::format;

fn closed(o: &mut Object<'_>, why: CloseReason) {
    match why {
        CloseReason::Eof => o.text("why", "eof"),
        CloseReason::Malformed => o.text("why", "malformed"),
        CloseReason::Slow => o.text("why", "slow"),
        CloseReason::Failed(errno) => {
            o.text("why", "failed");
            o.signed("errno", errno);
        }
        CloseReason::Carrier(kind, end) => {
            let name = match kind {
                CarrierKind::Ssh => "ssh",
                CarrierKind::Srun => "srun",
                CarrierKind::Exec => "exec",
            };
            o.text("why", name);
            match end {
                CarrierEnd::Code(code) => o.number("code", code.into()),
                CarrierEnd::Signal(number) => match Signal::new(number) {
                    Some(sig) => o.text("signal", &format!("{sig}")),
                    None => o.text("signal", ""),
                },
            }
        }
    }
}

pub(in crate::events) fn lost(o: &mut Object<'_>, lost: Lost) {
    match lost {
        Lost::Agent(why) => {
            o.text("lost", "agent");
            closed(o, why);
        }
        Lost::AgentEarly => {
            o.text("lost", "agent");
            o.text("why", "early");
        }
        Lost::AgentMute => {
            o.text("lost", "agent");
            o.text("why", "mute");
        }
        Lost::Unheard => o.text("lost", "unheard"),
        Lost::Expired => o.text("lost", "expired"),
        Lost::Starved(long) => {
            o.text("lost", "starved");
            o.number("stood", long.nanos());
        }
        Lost::Guardian => o.text("lost", "guardian"),
        Lost::Init => o.text("lost", "init"),
        Lost::Warned(source) => {
            o.text("lost", "warned");
            o.text("source", source.word());
        }
    }
}
