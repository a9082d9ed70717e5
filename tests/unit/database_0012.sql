BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0012');
CREATE TABLE default_volume_types (
	project_id VARCHAR(255) NOT NULL, 
	volume_type_id VARCHAR(36) NOT NULL, 
	PRIMARY KEY (project_id)
);
CREATE TABLE messages (
	id VARCHAR(36) NOT NULL, 
	project_id VARCHAR(255) NOT NULL, 
	event_id VARCHAR(255) NOT NULL, 
	user_message VARCHAR(1024) NOT NULL, 
	message_level VARCHAR(255) NOT NULL, 
	resource_type VARCHAR(255), 
	resource_uuid VARCHAR(36), 
	request_id VARCHAR(255) NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "messages" VALUES('8fdcf96c-fc7c-4fd5-9396-eb225df8275f','project','VOLUME_VOLUME_001_003','no backend can hold this volume (fake: it is in availability_zone nova, not mars)','ERROR','VOLUME',NULL,'req-test','2026-11-22 06:23:44.570416','2126-12-22 06:23:44.570416');
CREATE TABLE qos_specs (
	id VARCHAR(36) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	consumer VARCHAR(16) NOT NULL, 
	specs JSON NOT NULL, 
	created_at DATETIME, 
	PRIMARY KEY (id), 
	UNIQUE (name)
);
CREATE TABLE quota_usage (
	project_id VARCHAR(255) NOT NULL, 
	volume_type_id VARCHAR(36) NOT NULL, 
	volumes INTEGER NOT NULL, 
	gigabytes INTEGER NOT NULL, 
	snapshots INTEGER NOT NULL, 
	snapshot_gigabytes INTEGER NOT NULL, 
	PRIMARY KEY (project_id, volume_type_id)
);
INSERT INTO "quota_usage" VALUES('project','',2,3,2,2);
INSERT INTO "quota_usage" VALUES('project','4035e792-82d1-43f4-a127-4c5067785b0d',1,2,0,0);
CREATE TABLE quotas (
	scope VARCHAR(16) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	resource VARCHAR(255) NOT NULL, 
	volume_type_id VARCHAR(36) NOT NULL, 
	hard_limit INTEGER NOT NULL, 
	PRIMARY KEY (scope, name, resource, volume_type_id)
);
CREATE TABLE services (
	host VARCHAR(255) NOT NULL, 
	binary VARCHAR(255) NOT NULL, 
	disabled BOOLEAN NOT NULL, 
	disabled_reason VARCHAR(255), 
	updated_at DATETIME, frozen BOOLEAN DEFAULT '0' NOT NULL, 
	PRIMARY KEY (host, binary)
);
CREATE TABLE snapshots (
	id VARCHAR(36) NOT NULL, 
	volume_id VARCHAR(36) NOT NULL, 
	display_name VARCHAR(255), 
	display_description VARCHAR(255), 
	volume_size INTEGER NOT NULL, 
	status VARCHAR(255) NOT NULL, 
	status_reason VARCHAR(1024), 
	project_id VARCHAR(255) NOT NULL, 
	user_id VARCHAR(255) NOT NULL, 
	metadata JSON NOT NULL, 
	created_at DATETIME, 
	updated_at DATETIME, 
	deleted_at DATETIME, 
	deleted BOOLEAN NOT NULL, sequence INTEGER DEFAULT '0' NOT NULL, reset_from VARCHAR(255), progress VARCHAR(255), volume_type_id VARCHAR(36), reference VARCHAR(255), 
	PRIMARY KEY (id), 
	FOREIGN KEY(volume_id) REFERENCES volumes (id)
);
INSERT INTO "snapshots" VALUES('8e89ebd9-c6c9-4f36-b221-67f4ea9d0d2e','63e1666c-a3fc-4f52-8b7d-79f4bdfca9d5','first',NULL,1,'available',NULL,'project','user','{}','2026-11-22 06:23:44.170601','2026-11-22 06:23:44.367084',NULL,0,1,NULL,NULL,NULL,NULL);
INSERT INTO "snapshots" VALUES('22880988-b6f3-46c9-8563-8d6d7a3136bb','63e1666c-a3fc-4f52-8b7d-79f4bdfca9d5','second',NULL,1,'available',NULL,'project','user','{}','2026-11-22 06:23:44.393434','2026-11-22 06:23:44.434448',NULL,0,2,NULL,NULL,NULL,NULL);
CREATE TABLE status_totals (
	kind VARCHAR(16) NOT NULL, 
	place VARCHAR(255) NOT NULL, 
	status VARCHAR(255) NOT NULL, 
	count INTEGER NOT NULL, 
	PRIMARY KEY (kind, place, status)
);
INSERT INTO "status_totals" VALUES('volume','fake','available',2);
INSERT INTO "status_totals" VALUES('volume','fake','extending',1);
INSERT INTO "status_totals" VALUES('attachment','','reserved',1);
INSERT INTO "status_totals" VALUES('attachment','ro','attaching',1);
INSERT INTO "status_totals" VALUES('attachment','rw','attached',1);
CREATE TABLE transfers (
	id VARCHAR(36) NOT NULL, 
	volume_id VARCHAR(36) NOT NULL, 
	display_name VARCHAR(255), 
	salt VARCHAR(255) NOT NULL, 
	key_hash VARCHAR(255) NOT NULL, 
	no_snapshots BOOLEAN NOT NULL, 
	source_project_id VARCHAR(255) NOT NULL, 
	created_at DATETIME NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(volume_id) REFERENCES volumes (id)
);
CREATE TABLE type_encryption (
	volume_type_id VARCHAR(36) NOT NULL, 
	encryption_id VARCHAR(36) NOT NULL, 
	provider VARCHAR(255) NOT NULL, 
	control_location VARCHAR(16) NOT NULL, 
	cipher VARCHAR(255), 
	key_size INTEGER, 
	created_at DATETIME NOT NULL, 
	updated_at DATETIME, 
	PRIMARY KEY (volume_type_id), 
	FOREIGN KEY(volume_type_id) REFERENCES volume_types (id)
);
CREATE TABLE volume_attachment (
	id VARCHAR(36) NOT NULL, 
	volume_id VARCHAR(36) NOT NULL, 
	instance_uuid VARCHAR(36), 
	attached_host VARCHAR(255), 
	mountpoint VARCHAR(255), 
	attach_time DATETIME, 
	detach_time DATETIME, 
	attach_status VARCHAR(255) NOT NULL, 
	attach_mode VARCHAR(2), 
	connector TEXT, 
	connection_info TEXT, 
	initiator VARCHAR(255), 
	leaving VARCHAR(255), 
	auth_username VARCHAR(255), 
	auth_password VARCHAR(255), 
	created_at DATETIME, 
	updated_at DATETIME, 
	deleted_at DATETIME, 
	deleted BOOLEAN NOT NULL, status_reason VARCHAR(1024), answered BOOLEAN DEFAULT '1' NOT NULL, legacy VARCHAR(255), announced BOOLEAN DEFAULT '0' NOT NULL, user_id VARCHAR(255), 
	PRIMARY KEY (id), 
	FOREIGN KEY(volume_id) REFERENCES volumes (id)
);
INSERT INTO "volume_attachment" VALUES('91a1f521-8a27-436e-a645-3e4d8befb41b','bc3acebf-03c4-4902-a797-55cbaca183b2',NULL,'reader','na','2026-11-22 06:23:43.813764',NULL,'attaching','ro','{"initiator":"iqn.1994-05.com.example:reader","host":"reader","ip":"127.0.0.1"}','{"driver_volume_type":"iscsi","target_iqn":"iqn.2010-10.org.openstack:volume-bc3acebf-03c4-4902-a797-55cbaca183b2","target_portal":"127.0.0.1:3260","target_lun":0,"auth_method":"CHAP","access_mode":"ro","attachment_id":"91a1f521-8a27-436e-a645-3e4d8befb41b","cacheable":false,"encrypted":false,"enforce_multipath":false,"qos_specs":null}','iqn.1994-05.com.example:reader',NULL,'fcpoQofFrARKwnZ5Z2AR','VvDFNXjzt8vIul26','2026-11-22 06:23:43.771341','2026-11-22 06:23:43.814254',NULL,0,NULL,1,NULL,0,NULL);
INSERT INTO "volume_attachment" VALUES('56c27206-a800-4fb1-b7bb-d6289a992a6d','bc3acebf-03c4-4902-a797-55cbaca183b2',NULL,'writer','na','2026-11-22 06:23:43.843645',NULL,'attached','rw','{"initiator":"iqn.1994-05.com.example:writer","host":"writer","ip":"127.0.0.1"}','{"driver_volume_type":"iscsi","target_iqn":"iqn.2010-10.org.openstack:volume-bc3acebf-03c4-4902-a797-55cbaca183b2","target_portal":"127.0.0.1:3260","target_lun":0,"auth_method":"CHAP","access_mode":"rw","attachment_id":"56c27206-a800-4fb1-b7bb-d6289a992a6d","cacheable":false,"encrypted":false,"enforce_multipath":false,"qos_specs":null}','iqn.1994-05.com.example:writer',NULL,'WkEflvJ7HkEyqhRrjogs','JzEfptzKiR8riiXu','2026-11-22 06:23:43.831464','2026-11-22 06:23:43.887871',NULL,0,NULL,1,NULL,0,NULL);
INSERT INTO "volume_attachment" VALUES('b1df486d-f92d-4752-909d-014570e7a313','bc3acebf-03c4-4902-a797-55cbaca183b2',NULL,NULL,NULL,NULL,NULL,'reserved',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-22 06:23:43.931003','2026-11-22 06:23:43.931058',NULL,0,NULL,1,NULL,0,NULL);
CREATE TABLE volume_type_extra_specs (
	volume_type_id VARCHAR(36) NOT NULL, 
	"key" VARCHAR(255) NOT NULL, 
	value VARCHAR(255) NOT NULL, 
	PRIMARY KEY (volume_type_id, "key"), 
	FOREIGN KEY(volume_type_id) REFERENCES volume_types (id)
);
INSERT INTO "volume_type_extra_specs" VALUES('4035e792-82d1-43f4-a127-4c5067785b0d','multiattach','<is> True');
CREATE TABLE volume_type_projects (
	volume_type_id VARCHAR(36) NOT NULL, 
	project_id VARCHAR(255) NOT NULL, 
	PRIMARY KEY (volume_type_id, project_id)
);
CREATE TABLE volume_types (
	id VARCHAR(36) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	description VARCHAR(255), 
	is_public BOOLEAN NOT NULL, 
	created_at DATETIME, 
	updated_at DATETIME, qos_specs_id VARCHAR(36), 
	PRIMARY KEY (id), 
	UNIQUE (name)
);
INSERT INTO "volume_types" VALUES('4035e792-82d1-43f4-a127-4c5067785b0d','multiattach',NULL,1,'2026-11-22 06:23:43.515408',NULL,NULL);
CREATE TABLE volumes (
	id VARCHAR(36) NOT NULL, 
	display_name VARCHAR(255), 
	display_description VARCHAR(255), 
	size INTEGER NOT NULL, 
	status VARCHAR(255) NOT NULL, 
	status_reason VARCHAR(1024), 
	backend VARCHAR(255) NOT NULL, 
	project_id VARCHAR(255) NOT NULL, 
	user_id VARCHAR(255) NOT NULL, 
	availability_zone VARCHAR(255) NOT NULL, 
	multiattach BOOLEAN NOT NULL, 
	bootable BOOLEAN NOT NULL, 
	volume_type_id VARCHAR(36), 
	metadata JSON NOT NULL, 
	created_at DATETIME, 
	updated_at DATETIME, 
	deleted_at DATETIME, 
	deleted BOOLEAN NOT NULL, 
	snapshot_id VARCHAR(36), 
	source_volid VARCHAR(36), 
	intent JSON, 
	leaving VARCHAR(255), 
	migration_status VARCHAR(255), readonly BOOLEAN, image_metadata JSON DEFAULT '{}' NOT NULL, reset_from VARCHAR(255), 
	PRIMARY KEY (id)
);
INSERT INTO "volumes" VALUES('bc3acebf-03c4-4902-a797-55cbaca183b2',NULL,NULL,2,'available',NULL,'fake','project','user','nova',1,0,'4035e792-82d1-43f4-a127-4c5067785b0d','{}','2026-11-22 06:23:43.542200','2026-11-22 06:23:43.921025',NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}',NULL);
INSERT INTO "volumes" VALUES('63e1666c-a3fc-4f52-8b7d-79f4bdfca9d5','plain','d',1,'available',NULL,'fake','project','user','nova',0,0,NULL,'{"a": "b"}','2026-11-22 06:23:43.941303','2026-11-22 06:23:43.998779',NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}',NULL);
INSERT INTO "volumes" VALUES('d3f5f03e-10d3-4431-88d5-9ff5b57a7222','gone',NULL,1,'deleting',NULL,'fake','project','user','nova',0,0,NULL,'{}','2026-11-22 06:23:44.093238','2026-11-22 06:23:44.218682','2026-11-22 06:23:44.218659',1,NULL,NULL,NULL,NULL,NULL,NULL,'{}',NULL);
INSERT INTO "volumes" VALUES('03f1f861-f78c-4fab-9fb7-c6668cd31b54','extending',NULL,1,'extending',NULL,'fake','project','user','nova',0,0,NULL,'{}','2026-11-22 06:23:44.481745','2026-11-22 06:23:44.536408',NULL,0,NULL,NULL,'{"size": 2}',NULL,NULL,NULL,'{}',NULL);
CREATE INDEX volumes_type ON volumes (volume_type_id) WHERE deleted = 0;
CREATE INDEX volumes_of_source ON volumes (source_volid) WHERE deleted = 0;
CREATE INDEX volumes_backend ON volumes (backend, status) WHERE deleted = 0;
CREATE INDEX volumes_of_snapshot ON volumes (snapshot_id) WHERE deleted = 0;
CREATE INDEX volumes_page ON volumes (created_at, id) WHERE deleted = 0;
CREATE INDEX volumes_project_page ON volumes (project_id, created_at, id) WHERE deleted = 0;
CREATE INDEX snapshots_page ON snapshots (created_at, id) WHERE deleted = 0;
CREATE INDEX snapshots_project_page ON snapshots (project_id, created_at, id) WHERE deleted = 0;
CREATE INDEX attachments_page ON volume_attachment (created_at, id) WHERE deleted = 0;
CREATE INDEX attachments_of_initiator ON volume_attachment (volume_id, initiator) WHERE deleted = 0;
CREATE INDEX attachments_of_instance ON volume_attachment (instance_uuid) WHERE deleted = 0;
CREATE INDEX snapshots_of_volume ON snapshots (volume_id, deleted, sequence);
CREATE INDEX attachments_of_volume ON volume_attachment (volume_id, deleted, attach_status);
CREATE INDEX attachments_unanswered ON volume_attachment (volume_id) WHERE answered = 0;
CREATE INDEX volumes_gone ON volumes (deleted_at) WHERE deleted = 1;
CREATE INDEX snapshots_gone ON snapshots (deleted_at) WHERE deleted = 1;
CREATE INDEX attachments_gone ON volume_attachment (deleted_at) WHERE deleted = 1;
CREATE UNIQUE INDEX transfers_of_volume ON transfers (volume_id);
CREATE TRIGGER quota_volume_added AFTER INSERT ON volumes
BEGIN
  INSERT INTO quota_usage
    (project_id, volume_type_id, volumes, gigabytes, snapshots, snapshot_gigabytes)
  SELECT NEW.project_id, coalesce(json_extract(NEW.intent, '$.type_id'), NEW.volume_type_id, ''), 1, max(NEW.size, coalesce(json_extract(NEW.intent, '$.size'), 0)), 0, 0 WHERE NEW.deleted = 0
  ON CONFLICT (project_id, volume_type_id) DO UPDATE SET
    volumes = volumes + excluded.volumes,
    gigabytes = gigabytes + excluded.gigabytes,
    snapshots = snapshots + excluded.snapshots,
    snapshot_gigabytes = snapshot_gigabytes + excluded.snapshot_gigabytes;
END;
CREATE TRIGGER quota_volume_changed AFTER UPDATE OF deleted, project_id, volume_type_id, size, intent ON volumes
WHEN (OLD.deleted, OLD.project_id, coalesce(json_extract(OLD.intent, '$.type_id'), OLD.volume_type_id, ''), max(OLD.size, coalesce(json_extract(OLD.intent, '$.size'), 0))) IS NOT (NEW.deleted, NEW.project_id, coalesce(json_extract(NEW.intent, '$.type_id'), NEW.volume_type_id, ''), max(NEW.size, coalesce(json_extract(NEW.intent, '$.size'), 0)))
BEGIN
  INSERT INTO quota_usage
    (project_id, volume_type_id, volumes, gigabytes, snapshots, snapshot_gigabytes)
  SELECT OLD.project_id, coalesce(json_extract(OLD.intent, '$.type_id'), OLD.volume_type_id, ''), -1, -max(OLD.size, coalesce(json_extract(OLD.intent, '$.size'), 0)), 0, 0 WHERE OLD.deleted = 0
  ON CONFLICT (project_id, volume_type_id) DO UPDATE SET
    volumes = volumes + excluded.volumes,
    gigabytes = gigabytes + excluded.gigabytes,
    snapshots = snapshots + excluded.snapshots,
    snapshot_gigabytes = snapshot_gigabytes + excluded.snapshot_gigabytes;
  INSERT INTO quota_usage
    (project_id, volume_type_id, volumes, gigabytes, snapshots, snapshot_gigabytes)
  SELECT NEW.project_id, coalesce(json_extract(NEW.intent, '$.type_id'), NEW.volume_type_id, ''), 1, max(NEW.size, coalesce(json_extract(NEW.intent, '$.size'), 0)), 0, 0 WHERE NEW.deleted = 0
  ON CONFLICT (project_id, volume_type_id) DO UPDATE SET
    volumes = volumes + excluded.volumes,
    gigabytes = gigabytes + excluded.gigabytes,
    snapshots = snapshots + excluded.snapshots,
    snapshot_gigabytes = snapshot_gigabytes + excluded.snapshot_gigabytes;
  DELETE FROM quota_usage WHERE project_id = OLD.project_id
    AND volumes = 0 AND gigabytes = 0 AND snapshots = 0 AND snapshot_gigabytes = 0;
END;
CREATE TRIGGER quota_snapshot_added AFTER INSERT ON snapshots
BEGIN
  INSERT INTO quota_usage
    (project_id, volume_type_id, volumes, gigabytes, snapshots, snapshot_gigabytes)
  SELECT NEW.project_id, coalesce(NEW.volume_type_id, ''), 0, 0, 1, NEW.volume_size WHERE NEW.deleted = 0
  ON CONFLICT (project_id, volume_type_id) DO UPDATE SET
    volumes = volumes + excluded.volumes,
    gigabytes = gigabytes + excluded.gigabytes,
    snapshots = snapshots + excluded.snapshots,
    snapshot_gigabytes = snapshot_gigabytes + excluded.snapshot_gigabytes;
END;
CREATE TRIGGER quota_snapshot_changed AFTER UPDATE OF deleted, project_id, volume_type_id, volume_size ON snapshots
WHEN (OLD.deleted, OLD.project_id, coalesce(OLD.volume_type_id, ''), OLD.volume_size) IS NOT (NEW.deleted, NEW.project_id, coalesce(NEW.volume_type_id, ''), NEW.volume_size)
BEGIN
  INSERT INTO quota_usage
    (project_id, volume_type_id, volumes, gigabytes, snapshots, snapshot_gigabytes)
  SELECT OLD.project_id, coalesce(OLD.volume_type_id, ''), 0, 0, -1, -OLD.volume_size WHERE OLD.deleted = 0
  ON CONFLICT (project_id, volume_type_id) DO UPDATE SET
    volumes = volumes + excluded.volumes,
    gigabytes = gigabytes + excluded.gigabytes,
    snapshots = snapshots + excluded.snapshots,
    snapshot_gigabytes = snapshot_gigabytes + excluded.snapshot_gigabytes;
  INSERT INTO quota_usage
    (project_id, volume_type_id, volumes, gigabytes, snapshots, snapshot_gigabytes)
  SELECT NEW.project_id, coalesce(NEW.volume_type_id, ''), 0, 0, 1, NEW.volume_size WHERE NEW.deleted = 0
  ON CONFLICT (project_id, volume_type_id) DO UPDATE SET
    volumes = volumes + excluded.volumes,
    gigabytes = gigabytes + excluded.gigabytes,
    snapshots = snapshots + excluded.snapshots,
    snapshot_gigabytes = snapshot_gigabytes + excluded.snapshot_gigabytes;
  DELETE FROM quota_usage WHERE project_id = OLD.project_id
    AND volumes = 0 AND gigabytes = 0 AND snapshots = 0 AND snapshot_gigabytes = 0;
END;
CREATE TRIGGER status_volume_added AFTER INSERT ON volumes
BEGIN
  INSERT INTO status_totals (kind, place, status, count)
  SELECT 'volume', coalesce(NEW.backend, ''), NEW.status, 1
    WHERE NEW.deleted = 0
  ON CONFLICT (kind, place, status) DO UPDATE SET count = count + excluded.count;
END;
CREATE TRIGGER status_volume_changed AFTER UPDATE OF deleted, backend, status ON volumes
WHEN (OLD.deleted, OLD.backend, OLD.status) IS NOT (NEW.deleted, NEW.backend, NEW.status)
BEGIN
  INSERT INTO status_totals (kind, place, status, count)
  SELECT 'volume', coalesce(OLD.backend, ''), OLD.status, -1
    WHERE OLD.deleted = 0
  ON CONFLICT (kind, place, status) DO UPDATE SET count = count + excluded.count;
  INSERT INTO status_totals (kind, place, status, count)
  SELECT 'volume', coalesce(NEW.backend, ''), NEW.status, 1
    WHERE NEW.deleted = 0
  ON CONFLICT (kind, place, status) DO UPDATE SET count = count + excluded.count;
END;
CREATE TRIGGER status_attachment_added AFTER INSERT ON volume_attachment
BEGIN
  INSERT INTO status_totals (kind, place, status, count)
  SELECT 'attachment', coalesce(NEW.attach_mode, ''), NEW.attach_status, 1
    WHERE NEW.deleted = 0
  ON CONFLICT (kind, place, status) DO UPDATE SET count = count + excluded.count;
END;
CREATE TRIGGER status_attachment_changed AFTER UPDATE OF deleted, attach_mode, attach_status ON volume_attachment
WHEN (OLD.deleted, OLD.attach_mode, OLD.attach_status) IS NOT (NEW.deleted, NEW.attach_mode, NEW.attach_status)
BEGIN
  INSERT INTO status_totals (kind, place, status, count)
  SELECT 'attachment', coalesce(OLD.attach_mode, ''), OLD.attach_status, -1
    WHERE OLD.deleted = 0
  ON CONFLICT (kind, place, status) DO UPDATE SET count = count + excluded.count;
  INSERT INTO status_totals (kind, place, status, count)
  SELECT 'attachment', coalesce(NEW.attach_mode, ''), NEW.attach_status, 1
    WHERE NEW.deleted = 0
  ON CONFLICT (kind, place, status) DO UPDATE SET count = count + excluded.count;
END;
COMMIT;
