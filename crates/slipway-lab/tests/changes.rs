//! Changes of conditions as people write them.

use proptest::prelude::*;
use slipway_document::units::{Fraction, Rate, Seconds};
use slipway_lab::change::{Keys, LinkChange, NodeChange, WordError};
use slipway_lab::condition::{Distribution, LinkConditions, Loss};
use slipway_lab::model::Limits;

fn link(words: &str) -> LinkConditions {
    let change: LinkChange = words.parse().unwrap_or_else(|error| panic!("{words}: {error}"));
    assert!(change.clear.is_empty());
    change.set
}

#[test]
fn one_key_leaves_the_others() {
    let before = link("delay=20ms loss=0.5%");
    let change: LinkChange = "loss=none rate=10mbit".parse().unwrap();
    assert_eq!(change.apply(&before), link("delay=20ms rate=10mbit"));
    assert_eq!(change.to_string(), "rate=10mbit loss=none");
    assert!(LinkChange::default().is_empty());
    assert!(!change.is_empty());
}

#[test]
fn words_of_one_value_stay_together() {
    let one = LinkChange::parse(&["loss=gemodel 1% 10%", "delay=1ms"]).unwrap();
    let split = LinkChange::parse(&["loss=gemodel", "1%", "10%", "delay=1ms"]).unwrap();
    assert_eq!(one, split);
    assert_eq!(NodeChange::parse(&["cpu=2", "cores"]).unwrap().to_string(), "cpu=2 cores");
}

#[test]
fn wrong_words_are_told_the_right_ones() {
    let wrong = |text: &str| text.parse::<LinkChange>().unwrap_err().to_string();
    assert_eq!(
        wrong("20ms"),
        "`20ms` is not of the form key=value; write for example `delay=20ms` for a link, `cpu=50%` for a node"
    );
    assert!(wrong("dealy=20ms").starts_with("there is no key `dealy`; did you mean `delay`?"));
    assert!(wrong("dealy=none").starts_with("there is no key `dealy`; did you mean `delay`?"));
    assert_eq!(wrong("delay=20"), "delay: `20` has no unit; write `20ms` or `1.5s` (units: us, ms, s, min, h)");
    assert_eq!(wrong("delay=1ms delay=2ms"), "`delay` is here twice; keep one of the two");
    assert!("cpu=50% disk.size=1GiB".parse::<NodeChange>().is_err_and(|e| matches!(e, WordError::Fixed { .. })));
    assert!("disk.write=20MB".parse::<NodeChange>().unwrap_err().to_string().contains("write `20MB/s`"));
    assert!("limit=+5".parse::<LinkChange>().is_err());
}

#[test]
fn limits_change_the_same_way() {
    let change: NodeChange =
        "cpu=1200 MHz memory=512MiB disk.write=5MB/s disk.read_iops=10 cpu_period=10ms".parse().unwrap();
    let before = Limits { cpuset: Some("0-3".into()), pids: Some(100), ..Limits::default() };
    let after = change.checked(&before).unwrap();
    assert_eq!((after.cpuset.as_deref(), after.pids), (Some("0-3"), Some(100)));
    let freed: NodeChange = "cpu=none cpu_period=none disk.write=none disk.read_iops=none memory=none".parse().unwrap();
    assert_eq!(freed.apply(&after), before);
    let problem = "cpu=none".parse::<NodeChange>().unwrap().checked(&after).unwrap_err();
    assert_eq!((problem.key, problem.needs), ("cpu_period", Some("cpu")));
}

/// What a change leaves behind is held to the rules of files.
#[test]
fn what_cannot_hold_together_is_refused() {
    let before = link("delay=20ms jitter=2ms");
    let problem = "delay=none".parse::<LinkChange>().unwrap().checked(&before).unwrap_err();
    assert_eq!(problem.to_string(), "`jitter` without `delay`; add `delay`, such as `20ms`, or leave `jitter` out");
    assert!("delay=none jitter=none".parse::<LinkChange>().unwrap().checked(&before).is_ok());
    assert!("rate=0bit".parse::<LinkChange>().unwrap().checked(&before).is_err());
}

/// However small or large, a value is written as what reads back.
#[test]
fn extreme_values_read_back() {
    for number in ["0.000000000000000000000000000000000000001", "99999999999999999999", "0.1234567890123456789"] {
        for word in [format!("delay={number}us"), format!("delay={number}h"), format!("jitter={number}ms")] {
            let once = link(&word);
            assert_eq!(link(&once.to_string()), once, "{word}");
        }
        let cpu: NodeChange = format!("cpu={number} GHz").parse().unwrap();
        assert_eq!(cpu.to_string().parse::<NodeChange>(), Ok(cpu));
    }
    let small = link("loss=0.000000000000000000000000000000000000001%");
    assert_eq!(link(&small.to_string()), small);
    assert!(format!("delay={}h", "9".repeat(399)).parse::<LinkChange>().is_err());
}

#[test]
fn natural_is_what_changes_no_packet() {
    for natural in ["", "delay=0s", "loss=0%", "corrupt=0% duplicate=0%", "limit=1000"] {
        assert!(link(natural).is_natural(), "{natural}");
    }
    for made in ["delay=1us", "loss=0.01%", "loss=gemodel 0%", "rate=1tbit", "duplicate=1%", "corrupt=1%"] {
        assert!(!link(made).is_natural(), "{made}");
    }
}

fn share() -> impl Strategy<Value = Fraction> {
    (0.0..=1.0).prop_map(Fraction)
}

fn time() -> impl Strategy<Value = Seconds> {
    (0.0..10.0, -7..3).prop_map(|(mantissa, exponent)| Seconds(mantissa * 10f64.powi(exponent)))
}

fn loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        share().prop_map(Loss::Random),
        [share(), share(), share(), share()].prop_map(|[p, r, one_minus_h, one_minus_k]| Loss::GilbertElliott {
            p,
            r,
            one_minus_h,
            one_minus_k
        }),
        [share(), share(), share(), share(), share()].prop_map(|[p13, p31, p32, p23, p14]| Loss::FourState {
            p13,
            p31,
            p32,
            p23,
            p14
        }),
    ]
}

fn conditions() -> impl Strategy<Value = LinkConditions> {
    use proptest::option::of;
    let times = (of(time()), of(time()), of(proptest::sample::select(&Distribution::ALL[..])));
    let shares = proptest::array::uniform6(of(share()));
    let whole = (of(any::<u32>()), of(any::<u64>().prop_map(Rate)), of(any::<u32>()), of(any::<u32>()));
    (times, of(loss()), shares, whole).prop_map(
        |((delay, jitter, distribution), loss, shares, (gap, rate, limit, queue))| {
            let [delay_correlation, loss_correlation, corrupt, duplicate, reorder, reorder_correlation] = shares;
            LinkConditions {
                delay,
                jitter,
                distribution,
                delay_correlation,
                loss,
                loss_correlation,
                corrupt,
                duplicate,
                reorder,
                reorder_correlation,
                gap,
                rate,
                limit,
                queue,
            }
        },
    )
}

fn change() -> impl Strategy<Value = LinkChange> {
    (conditions(), proptest::sample::subsequence(LinkConditions::NAMES, 0..5)).prop_map(|(mut set, clear)| {
        for key in &clear {
            set.clear(key);
        }
        LinkChange { set, clear: clear.into_iter().map(str::to_owned).collect() }
    })
}

proptest! {
    #[test]
    fn conditions_read_back(conditions in conditions()) {
        prop_assert_eq!(link(&conditions.to_string()), conditions.clone());
        let json = serde_json::to_string(&conditions).unwrap();
        prop_assert_eq!(serde_json::from_str::<LinkConditions>(&json).unwrap(), conditions);
    }

    #[test]
    fn changes_read_back(change in change()) {
        prop_assert_eq!(&change.to_string().parse::<LinkChange>().unwrap(), &change);
        let json = serde_json::to_string(&change).unwrap();
        prop_assert_eq!(serde_json::from_str::<LinkChange>(&json).unwrap(), change);
    }

    /// Key by key: what the change names is as it says, all else as it was.
    #[test]
    fn a_change_touches_its_keys_only(before in conditions(), change in change()) {
        let after = change.apply(&before);
        let value = |of: &LinkConditions, key: &str| of.words().into_iter().find(|(name, _)| *name == key);
        for key in LinkConditions::NAMES {
            let set = value(&change.set, key);
            let cleared = change.clear.iter().any(|cleared| cleared == key);
            let expected = if cleared { None } else { set.or_else(|| value(&before, key)) };
            prop_assert_eq!(value(&after, key), expected);
        }
        prop_assert_eq!(&change.apply(&after), &after);
    }

    #[test]
    fn over_is_associative(a in conditions(), b in conditions(), c in conditions()) {
        prop_assert_eq!(a.over(&b).over(&c), a.over(&b.over(&c)));
    }

    #[test]
    fn any_words_are_a_change_or_an_error(text in "([a-z_.]{0,8}=?[0-9a-z% ]{0,6} ?){0,4}") {
        if let Ok(change) = text.parse::<LinkChange>() {
            prop_assert_eq!(change.to_string().parse::<LinkChange>().unwrap(), change);
        }
        let _ = text.parse::<NodeChange>();
    }
}
