package netfilter

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/weirmesh/weir/internal/redirect"
)

var hooks = map[string]*nftables.ChainHook{
	"prerouting": nftables.ChainHookPrerouting, "input": nftables.ChainHookInput, "output": nftables.ChainHookOutput,
}

// patience bounds what the kernel may take for all that is asked of it: a container that never ends would keep its pod from
// starting, without a word.
const patience = 30 * time.Second

// largestRules is more than the messages of the largest plan have, in bytes, and largestAnswers what the kernel may answer to them.
const largestRules, largestAnswers = 1 << 20, 8 << 20

// open opens a connection to the kernel's nftables, for what is done within a time.
func open(within time.Duration) (*nftables.Conn, error) {
	c, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetDeadline(time.Now().Add(within)), c.SetWriteBuffer(largestRules), c.SetReadBuffer(largestAnswers))
	}))
	if err != nil {
		return nil, explain(fmt.Errorf("netlink: %w", err))
	}
	return c, nil
}

// Set makes the plan's rules those of the network namespace that the calling thread is in, and returns how many there
// are. The table is replaced whole, in one transaction: no connection finds none, or half of one. It then reads the
// table back and compares it with the plan. An error says what to do.
func Set(p *redirect.Plan) (rules int, err error) { return set(p, patience) }

func set(p *redirect.Plan, within time.Duration) (rules int, err error) {
	c, err := open(within)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.CloseLasting() }()
	chains := p.Rules()
	table := &nftables.Table{Name: redirect.Table, Family: nftables.TableFamilyINet}
	c.AddTable(table) // so that there is one to delete; DESTROYTABLE needs Linux 6.3
	c.DelTable(table)
	c.AddTable(table)
	made := map[string]*nftables.Chain{}
	for _, chain := range chains {
		n := &nftables.Chain{Name: chain.Name, Table: table}
		if chain.Type != "" {
			accept := nftables.ChainPolicyAccept
			n.Type, n.Hooknum, n.Priority, n.Policy = nftables.ChainType(chain.Type), hooks[chain.Hook], nftables.ChainPriorityRef(nftables.ChainPriority(chain.Priority)), &accept
		}
		made[chain.Name] = c.AddChain(n)
	}
	for _, chain := range chains {
		for _, r := range chain.Rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: made[chain.Name], Exprs: expressions(r)})
			rules++
		}
	}
	// ENOBUFS says that answers were lost, not what became of the transaction. The table says that.
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOBUFS) {
		return 0, explain(err)
	}
	got, err := read(c)
	if err != nil {
		return 0, fmt.Errorf("read the rules back: %w", err)
	}
	if want := redirect.Text(chains); redirect.Text(got) != want {
		return 0, fmt.Errorf("the kernel has other rules than were set; does another program change table inet %s?\nset:\n%s\nthere is:\n%s", redirect.Table, want, redirect.Text(got))
	}
	return rules, nil
}

// read returns the rules that the network namespace has; none if there is no redirect.
func read(c *nftables.Conn) (out []redirect.Chain, err error) {
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, explain(err)
	}
	for _, n := range chains {
		if n.Table.Name != redirect.Table {
			continue
		}
		chain := redirect.Chain{Name: n.Name, Type: string(n.Type)}
		if n.Hooknum != nil {
			for name, h := range hooks {
				if *h == *n.Hooknum {
					chain.Hook = name
				}
			}
			chain.Priority = int32(*n.Priority)
			if n.Policy == nil || *n.Policy != nftables.ChainPolicyAccept {
				return nil, fmt.Errorf("chain %s has another policy than accept", n.Name)
			}
		}
		rules, err := c.GetRules(n.Table, n)
		if err != nil {
			return nil, explain(err)
		}
		for _, r := range rules {
			one, err := rule(r.Exprs)
			if err != nil {
				return nil, fmt.Errorf("chain %s: %w", n.Name, err)
			}
			chain.Rules = append(chain.Rules, one)
		}
		out = append(out, chain)
	}
	return slices.Clip(out), nil
}

// explain adds what to do about an error of the kernel.
func explain(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: the kernel did not answer within %s; another program may hold its nftables (on the node: nft list ruleset), or the node is too busy", err, patience)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: only a process with the capability NET_ADMIN may set the redirect: add it to the container's securityContext.capabilities, "+
			"which Pod Security's levels baseline and restricted forbid", err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w: the kernel lacks something of nftables; it must be Linux 5.2 or newer, and the node needs the modules nf_tables, nft_chain_nat, nft_redir and nft_ct "+
			"(on the node: modprobe -a nf_tables nft_chain_nat nft_redir nft_ct)", err)
	}
	return err
}
