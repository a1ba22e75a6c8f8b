package handlers

import (
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/notify/alertmanager"
	"github.com/sonde-probe/sonde/notify/run"
	"github.com/sonde-probe/sonde/notify/webhook"
)

// notifyOutputs are the output blocks of notify blocks, by name.
var notifyOutputs = map[string]block[func(settings any, spec *notify.Spec)]{
	"alertmanager": notifyOutputOf(alertmanager.Config.Check),
	"run":          notifyOutputOf(run.Config.Check),
	"webhook":      notifyOutputOf(webhook.Config.Check),
}

func notifyOutputOf[C interface{ Fill(*notify.Spec) }](check func(C) error) block[func(settings any, spec *notify.Spec)] {
	return block[func(settings any, spec *notify.Spec)]{config.SettingsOf(check), func(settings any, spec *notify.Spec) { settings.(C).Fill(spec) }}
}

// NotifySpecs returns the specs of a configuration's notifiers, by name.
func NotifySpecs(notifiers map[string]config.Notifier) map[string]notify.Spec {
	specs := make(map[string]notify.Spec, len(notifiers))
	for name, n := range notifiers {
		spec := notify.Spec{
			Output: n.Output, Labels: n.Labels, ExternalURL: n.ExternalURL, Settings: n.Settings,
			Selection: notify.Selection{Targets: n.Targets, Groups: n.Groups, Severity: n.Severity},
		}
		notifyOutputs[n.Output].make(n.Settings, &spec)
		specs[name] = spec
	}
	return specs
}
