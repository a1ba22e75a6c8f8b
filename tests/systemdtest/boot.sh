#!/bin/sh
# Boots systemd as PID 1 of namespaces of its own: boot.sh DIR NAME [inside]. NAME is that of its control group. It has the network
# of the machine, and sees DIR, to read. It must change nothing else of the machine: its root is an overlay, and /tmp, /dev and /run are its
# own, since systemd empties and fills them when it boots. It can set no sysctl, clock or module.
set -e
dir=$1 name=$2

if [ "$3" != inside ]; then
	for g in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
		[ -e $g/cgroup.procs ] || continue
		mkdir "$g/$name"
		echo $$ >"$g/$name/cgroup.procs"
	done
	exec unshare --mount --pid --cgroup --ipc --uts --fork --kill-child "$0" "$dir" "$name" inside
fi

mount --make-rprivate /
mkdir -p "$dir/root"
mount -t tmpfs tmpfs "$dir/root"
cd "$dir/root"
mkdir up work root
mount -t overlay overlay -o lowerdir=/,upperdir=up,workdir=work root
cd root
mount -t proc proc proc
for path in proc/sys proc/sysrq-trigger proc/irq proc/bus; do
	[ -e $path ] || continue
	mount --bind $path $path
	mount -o remount,bind,ro $path
done
mount --bind /dev/null proc/cgroups # so that it mounts no other controllers
mount -t sysfs -o ro sysfs sys
for path in run tmp dev var/tmp; do
	mount -t tmpfs tmpfs $path
done
for device in null zero full random urandom tty; do
	touch dev/$device
	mount --bind /dev/$device dev/$device
done
touch dev/kmsg
mount --bind /dev/null dev/kmsg # the log of the machine
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
if [ -e /sys/fs/cgroup/cgroup.procs ]; then
	mount -t cgroup2 cgroup2 sys/fs/cgroup
else
	mount -t tmpfs tmpfs sys/fs/cgroup
	mkdir sys/fs/cgroup/systemd sys/fs/cgroup/unified
	mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
	mount -t cgroup2 cgroup2 sys/fs/cgroup/unified
fi
mkdir -p test
mount --bind "$dir" test
mount -o remount,bind,ro test

rm -rf etc/systemd/system etc/fstab
mkdir -p etc/systemd/system run/log/journal run/systemd/system
: >etc/fstab
for unit in sysinit.target basic.target systemd-tmpfiles-setup.service systemd-tmpfiles-clean.service systemd-sysctl.service systemd-journald-audit.socket; do
	ln -s /dev/null etc/systemd/system/$unit
done
for unit in dbus.service dbus.socket polkit.service; do
	mkdir run/systemd/system/$unit.d
	printf '[Unit]\nDefaultDependencies=no\n' >run/systemd/system/$unit.d/test.conf
done
printf '[Unit]\nDefaultDependencies=no\nWants=dbus.service systemd-journald.service\n' >run/systemd/system/test.target
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . \
	setpriv --bounding-set -sys_time,-sys_module,-sys_rawio,-syslog,-mac_admin,-mac_override \
	/lib/systemd/systemd --system --unit=test.target --log-target=journal --log-level=info --show-status=no
